"""Readings of a model, its loss and its gradients that checks share."""
