"""A verdict for people and for programs. Reads findings and runs; imports no torch."""
