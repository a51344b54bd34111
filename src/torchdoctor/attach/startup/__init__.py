"""The folder that goes on the PYTHONPATH of commands under `torchdoctor run --`."""
