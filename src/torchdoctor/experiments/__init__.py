"""Experiments: a captured step run again, in processes of their own."""
