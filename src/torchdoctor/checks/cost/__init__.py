"""What a step and a run take."""
