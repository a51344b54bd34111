"""Training procedure."""
