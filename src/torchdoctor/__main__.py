"""python -m torchdoctor"""

from __future__ import annotations

import os.path
import sys

if not getattr(sys.flags, "safe_path", False):
    # As the console script has it: what lies in the current folder must not stand in for what we import.
    sys.path[0] = os.path.dirname(sys.executable)  # noqa: PTH120 - pathlib may be somebody's own module until here

from torchdoctor.cli import main

main()
