"""The pre-flight: what can be known to be wrong before hours are spent. One check a file; see check.py."""
