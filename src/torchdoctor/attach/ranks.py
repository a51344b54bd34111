"""A process's place in its run: which rank it is, whether it speaks, and the name its record goes under."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from torchdoctor.attach.options import Options

RANK_KEYS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
SIZE_KEYS = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")
LOCAL_KEYS = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
NODE_KEYS = ("GROUP_RANK", "SLURM_NODEID")
"""What torchrun, Open MPI, MPICH and Slurm put into the environment of the processes they start."""

SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "fish", "tcsh", "busybox"})


def find_rank(environment: Mapping[str, str] = os.environ) -> int | None:
    """The process's rank: from torch.distributed once that is up, else from the environment; None if it has none."""
    if is_together():
        return int(sys.modules["torch.distributed"].get_rank())
    return next((int(environment[key]) for key in RANK_KEYS if environment.get(key, "").isdigit()), None)


def world_size(environment: Mapping[str, str] = os.environ) -> int | None:
    """How many ranks train together; None where nothing says so."""
    if is_together():
        return int(sys.modules["torch.distributed"].get_world_size())
    return next((int(environment[key]) for key in SIZE_KEYS if environment.get(key, "").isdigit()), None)


def is_first_here(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this process is the first of its launch on this machine."""
    return not next((int(environment[key]) for key in LOCAL_KEYS if environment.get(key, "").isdigit()), 0)


def is_together() -> bool:
    """Several processes train one model, and are connected by torch."""
    distributed = sys.modules.get("torch.distributed")
    return distributed is not None and distributed.is_available() and bool(distributed.is_initialized())


def speaks(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this process is the one of its group that talks to the user."""
    return not find_rank(environment)


def take_place(options: Options) -> tuple[str, int]:
    """The run's name and the process's rank in it; called when training begins, by which time the rank is known.

    Where several processes may train under one name and they are not ranks of one training (a pool that tries
    settings), the first takes the name and each other one the name with a number. The folder is made to claim it.
    """
    if options.name is None:
        raise ValueError("the run has no name yet")
    rank = find_rank()
    if rank is not None or not options.shared:
        return options.name, rank or 0
    folder = Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    name, number = options.name, 1
    while True:
        try:
            (folder / name).mkdir()
            return name, 0
        except FileExistsError:
            number += 1
            name = f"{options.name}-{number}"


def last_written(options: Options) -> float:
    """When a run of this name was last written to, by the clock of its disk, which may be another machine's; 0.0 where
    there is none."""
    return max(map(_newest, _with_name(Path(options.out), options.name or "")), default=0.0)


def taken_places(options: Options, since: float) -> list[Path]:
    """The folders that processes of this run have written since `last_written`, the first one first."""
    folder, name = Path(options.out), options.name or ""
    written = [path for path in _with_name(folder, name) if _newest(path) > since]
    return sorted(written, key=lambda path: _number(path.name, name))


def _with_name(folder: Path, name: str) -> list[Path]:
    """Folders of a run's name, with a number or without; nothing else in a long list of runs is touched."""
    try:
        entries = os.listdir(folder)  # noqa: PTH208 - paths are made for those that fit alone
    except OSError:
        return []
    return [folder / entry for entry in entries if entry == name or _number(entry, name)]


def _newest(place: Path) -> float:
    """When a file of the folder was last written; 0.0 of one that is empty, is no folder or has gone."""
    try:
        return max(map(_written, place.iterdir()), default=0.0)
    except OSError:
        return 0.0


def _written(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except FileNotFoundError:
        return 0.0  # renamed meanwhile


def _number(candidate: str, name: str) -> int:
    number = candidate.removeprefix(f"{name}-")
    return int(number) if candidate != name and number.isdigit() and candidate == f"{name}-{number}" else 0


def make_name(stem: str, environment: Mapping[str, str] = os.environ) -> str:
    """A name for the run that no other run has, and that all processes of one launch on one machine agree on.

    Processes of one launch have one parent (torchrun's agent, slurmstepd, orted): its start and number name the run.
    A shell in between starts other things, too, so behind one every process has a name of its own.
    """
    parent = os.getppid()
    launched = environment.get("TORCHELASTIC_RUN_ID") or any(_is_many(environment.get(key)) for key in SIZE_KEYS)
    if not launched or _program_of(parent) in SHELLS:
        return f"{stem}-{_stamp(time.time())}-{os.getpid()}"
    started = _start_of(parent)
    when = _stamp(started) if started is not None else "launch"
    node = next((environment[key] for key in NODE_KEYS if environment.get(key)), "0")
    return f"{stem}-{when}-{parent}" + (f"-node{node}" if node != "0" else "")


def default_name() -> str:
    """The script and the moment: `train-20260131-142501`."""
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    return f"{Path(file).stem if file else 'run'}-{time.strftime('%Y%m%d-%H%M%S')}"


def free_name(folder: Path, name: str) -> str:
    """The name, or the name with a number where there is such a run already."""
    candidate, number = name, 2
    while (folder / candidate).exists():
        candidate, number = f"{name}-{number}", number + 1
    return candidate


def _is_many(size: str | None) -> bool:
    return size is not None and size.isdigit() and int(size) > 1


def _program_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _stamp(seconds: float) -> str:
    return time.strftime("%Y%m%d-%H%M%S", time.localtime(seconds))


def _start_of(pid: int) -> float | None:
    """When a process started, in seconds since 1970; None where the system does not tell (no /proc)."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        booted = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime"))
        return int(booted.split()[1]) + int(after_name[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, StopIteration):
        return None
