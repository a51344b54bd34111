"""Samples from use, out of whatever file or array they come in. Nothing in a file is executed."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchdoctor.errors import UsageError

KEYS = ("inputs", "input", "x", "X", "features", "data", "samples", "images", "pixel_values", "input_ids")
"""Under which an archive of several arrays holds the inputs."""
SUFFIXES = (".npy", ".npz", ".pt", ".pth", ".safetensors", ".csv", ".tsv", ".parquet")


@dataclass(frozen=True)
class UseSamples:
    """An array with a sample a row, and names of its columns where the file has them."""

    values: NDArray[Any]
    source: str
    names: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)


def load_samples(
    samples: Any, key: str | None, columns: Sequence[str] | None, drop: Sequence[str] | None, limit: int
) -> UseSamples:
    """`key` picks an array of several, `columns` and `drop` pick columns of a table by name."""
    if isinstance(samples, str | Path):
        path = Path(samples)
        found = _load(path, key)
        source = str(path)
    else:
        found, source = _from_object(samples, key), f"a {type(samples).__name__}"
    if isinstance(found, _Table):
        values, names, notes = _from_table(found, columns, drop, source)
    elif columns or drop:
        raise UsageError(f"{source} has no columns with names to pick from; pick them before, by their number")
    else:
        values, names, notes = found, (), []
    if values.dtype.kind not in "iufb" or values.ndim == 0:
        raise UsageError(f"{source} holds {values.dtype} of shape {values.shape}; samples are arrays of numbers")
    if not values.size:
        raise UsageError(f"{source} holds no sample: its shape is {values.shape}")
    every = -(-len(values) // max(1, limit))
    if every > 1:
        notes = [*notes, f"of {len(values)} samples one in {every} is looked at; limit=... takes more"]
        values = values[::every]
    return UseSamples(values, source, names, notes)


@dataclass(frozen=True)
class _Table:
    columns: dict[str, NDArray[Any]]
    named: bool


def _load(path: Path, key: str | None) -> NDArray[Any] | _Table:
    if not path.is_file():
        raise UsageError(f"there is no file {path}; samples come as {', '.join(SUFFIXES)}")
    suffix = path.suffix.lower()
    readers = {
        ".npy": lambda: np.load(path, mmap_mode="r", allow_pickle=False),
        ".npz": lambda: _pick(np.load(path, allow_pickle=False), key, path),
        ".pt": lambda: _from_torch(path, key),
        ".pth": lambda: _from_torch(path, key),
        ".safetensors": lambda: _from_safetensors(path, key),
        ".csv": lambda: _from_csv(path, ","),
        ".tsv": lambda: _from_csv(path, "\t"),
        ".parquet": lambda: _from_parquet(path),
    }
    if suffix not in readers:
        raise UsageError(f"{path} is of a kind that is not known; samples come as {', '.join(SUFFIXES)}")
    try:
        return readers[suffix]()
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"{path} cannot be read as {suffix}: {_one_line(error)}") from error


def _one_line(error: Exception) -> str:
    return (" ".join(str(error).split()) or type(error).__name__)[:200]


def _from_torch(path: Path, key: str | None) -> NDArray[Any]:
    import torch

    return _from_object(torch.load(path, map_location="cpu", weights_only=True), key, path)


def _from_safetensors(path: Path, key: str | None) -> NDArray[Any]:
    from safetensors.numpy import load_file

    return _pick(load_file(path), key, path)


def _from_object(value: Any, key: str | None, where: Any = "samples") -> NDArray[Any]:
    """Tensors, arrays, lists of numbers, mappings of these, and the first of a tuple of tensors."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        return (value.float() if str(value.dtype) in ("torch.bfloat16", "torch.float16") else value).numpy()
    if isinstance(value, Mapping):
        return _from_object(_pick(value, key, where), None, where)
    if isinstance(value, list | tuple) and value and hasattr(value[0], "shape"):
        shapes = {tuple(v.shape) for v in value}
        if isinstance(value, tuple) or len(shapes) > 1:
            return _from_object(value[0], None, where)
        return np.stack([_from_object(v, None, where) for v in value])
    try:
        return np.asarray(value)
    except ValueError as error:
        raise UsageError(f"{where}: samples of different shapes cannot be put into one array") from error


def _pick(held: Any, key: str | None, where: Any) -> Any:
    names = list(held.keys())
    if key is not None:
        if key not in names:
            raise UsageError(f"{where} holds {', '.join(map(str, names))}, and no {key!r}")
        return held[key]
    known = names if len(names) == 1 else [k for k in KEYS if k in names][:1]
    if not known:
        raise UsageError(f"{where} holds {', '.join(map(str, names))}; say which with --key NAME (key=...)")
    return held[known[0]]


def _from_csv(path: Path, delimiter: str) -> _Table:
    import pyarrow.csv as reader

    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        first = next(csv.reader(file, delimiter=delimiter), [])
    named = not all(_is_number(cell) for cell in first)
    options = reader.ReadOptions(autogenerate_column_names=not named)
    table = reader.read_csv(path, read_options=options, parse_options=reader.ParseOptions(delimiter=delimiter))
    return _Table(_arrays(table), named)


def _is_number(cell: str) -> bool:
    try:
        float(cell or "nan")
    except ValueError:
        return False
    return True


def _from_parquet(path: Path) -> NDArray[Any] | _Table:
    import pyarrow.parquet as reader

    table = reader.read_table(path)
    if table.num_columns == 1 and str(table.schema[0].type).startswith(("list", "fixed_size_list")):
        return np.asarray(table.column(0).to_pylist())
    return _Table(_arrays(table), True)


def _arrays(table: Any) -> dict[str, NDArray[Any]]:
    """Missing entries are NaN; what is neither a number nor a truth value stays an array of objects."""
    found = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        numbers = str(column.type).startswith(("int", "uint", "float", "double", "half", "bool", "decimal", "null"))
        values = column.to_numpy() if not numbers or not column.null_count else _with_nan(column)
        found[name] = values.astype(np.float64) if numbers and values.dtype.kind in "bO" else values
    return found


def _with_nan(column: Any) -> NDArray[Any]:
    return np.array([np.nan if v is None else float(v) for v in column.to_pylist()])


def _from_table(
    table: _Table, columns: Sequence[str] | None, drop: Sequence[str] | None, source: str
) -> tuple[NDArray[Any], tuple[str, ...], list[str]]:
    held = table.columns
    unknown = [c for c in (*(columns or ()), *(drop or ())) if c not in held]
    if unknown:
        raise UsageError(f"{source} has no column {unknown[0]!r}; its columns are {', '.join(held)}")
    wanted = list(columns) if columns else [c for c in held if c not in (drop or ())]
    words = [c for c in wanted if held[c].dtype.kind not in "iuf"]
    if columns and words:
        raise UsageError(f"column {words[0]!r} of {source} holds no numbers; encode it as the model gets it")
    wanted = [c for c in wanted if c not in words]
    if not wanted:
        raise UsageError(f"{source} has no column of numbers; its columns are {', '.join(held)}")
    notes = [f"columns without numbers are left out: {', '.join(words)}"] if words else []
    return np.stack([held[c] for c in wanted], 1), tuple(wanted) if table.named else (), notes
