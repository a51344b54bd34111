"""Instruments: each measures one thing of a model, a loader or a loop, and gives a result to read, plot or keep."""
