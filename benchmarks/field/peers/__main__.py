"""Runs a script with a peer attached: `python benchmarks/field/peers PEER PACKAGES VERDICT SCRIPT [ARGUMENT ...]`."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[2])

from field.peers.session import main  # noqa: E402 - found on the path above

main()
