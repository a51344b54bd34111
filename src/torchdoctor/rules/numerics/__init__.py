"""Numerics."""
