"""python -m torchdoctor"""

from __future__ import annotations

import sys
from pathlib import Path

if not getattr(sys.flags, "safe_path", False):
    # As the console script has it: what lies in the current folder must not stand in for what we import.
    sys.path[0] = str(Path(sys.executable).parent)

from torchdoctor.cli import main

main()
