"""What a model gets right and wrong, from its predictions."""
