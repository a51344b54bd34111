"""The lab: small experiments that are computed for real for whatever is chosen, to learn to read a training's signals.

station.py     what a station is made of: controls, presets, what is shown
stations/      one file a station: its words, its controls, its figures. Never imports torch
computing/     one file a station: what it computes, with torch
judging.py     asks torchdoctor's own rules about a training in the lab
rates.py       what is said of a learning rate
figures.py     what the figures of several stations have in common
worker.py      the process that computes
asking.py      asks that process
gallery/       loss curves of the zoo, trained here
clipping/      a recorded run at another threshold
"""
