"""A script's own saving and resuming, found in its source and tried."""
