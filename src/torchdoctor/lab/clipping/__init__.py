"""Clipping at another threshold: what it would have cut of the gradients that a run has recorded.

recorded.py   the norms of a run, and what a threshold does to them
places.py     where in the run it cuts: spikes, or a stretch at one end
room.py       its controls, and what is said
drawing.py    its figures
"""
