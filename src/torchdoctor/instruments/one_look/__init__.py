"""A batch, the gradients or the weights that are there, looked over once."""
