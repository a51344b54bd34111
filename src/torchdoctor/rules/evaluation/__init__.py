"""Evaluation and generalisation."""
