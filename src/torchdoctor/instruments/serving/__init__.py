"""Samples from use against those of training."""
