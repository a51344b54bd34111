"""Everything torchdoctor raises on purpose.

    TorchdoctorError
    ├── UsageError              the command line or a call was wrong; exit status 2
    │   ├── ScriptError         the script cannot be started
    │   └── UnknownNameError    no diagnosis, signal or case of that name
    ├── RunError                a run directory cannot be read
    │   ├── NotARunError        there is no run at that path
    │   ├── NewerRunError       written by a newer torchdoctor
    │   └── CaptureError        a capture in it cannot be read or written
    ├── LabError                the lab could not compute what was chosen
    └── StopTraining            the user asked to stop on a finding or a NaN, and it came

An error says what failed, what was seen, and what to do next. None of them is ever raised into a
training loop, except `StopTraining`, which the user asks for by name.
"""

from __future__ import annotations


class TorchdoctorError(Exception):
    """Base of all our errors."""


class UsageError(TorchdoctorError):
    """The command line or a call was wrong."""


class ScriptError(UsageError):
    """The script cannot be started."""


class UnknownNameError(UsageError):
    """No diagnosis, signal or case of that name."""


class RunError(TorchdoctorError):
    """A run directory cannot be read."""


class NotARunError(RunError):
    """There is no run at that path."""


class NewerRunError(RunError):
    """The run was written by a newer torchdoctor."""


class CaptureError(RunError):
    """A capture cannot be read or written."""


class LabError(TorchdoctorError):
    """The lab could not compute what was chosen."""


class StopTraining(TorchdoctorError):  # noqa: N818 - reads as the command it is
    """Ends the training loop: a finding that the user named with `stop_on` stands."""

    status = 0
    """of a script that it ended: what was asked for has happened"""


class TrainingHalted(StopTraining):
    """Ends the training loop because a loss or gradient is not finite and `on_nonfinite` says halt: an error."""

    status = 1


HALTED = "halted at step"
"""Begins what it says."""
