"""One batch learned by heart, down to the floor of its loss, and why where that fails."""
