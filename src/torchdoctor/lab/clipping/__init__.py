"""Clipping at another threshold: what it would have cut of the gradients that a run has recorded.

recorded.py   the norms of a run, and what a threshold does to them
room.py       its controls, and what is said
drawing.py    its figures
"""
