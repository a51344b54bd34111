"""Secrets are taken out of what torchdoctor writes: run folders (by store/documents.py), reports and pages."""

from torchdoctor.scrubbing.scrubber import HIDDEN, may_hold_secret, scrub, scrub_argv, scrub_text

__all__ = ["HIDDEN", "may_hold_secret", "scrub", "scrub_argv", "scrub_text"]
