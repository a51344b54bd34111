"""The same numbers again, and what that costs."""
