"""Readings of loaders, samples and labels that checks share."""
