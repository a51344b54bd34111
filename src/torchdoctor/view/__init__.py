"""A run in the terminal while it trains: what is known of it, and the rows that `run --live` draws it on."""
