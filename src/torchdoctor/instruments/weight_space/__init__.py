"""The loss around the weights: its sharpness, its shape, and the way to other weights."""
