"""Find the training loop and measure it without changing it."""
