"""Files that are torn, or made to harm: read as far as they are whole, and never a crash."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from store.samples import LOSS, read_everything, recording, write_stream
from torchdoctor import signals
from torchdoctor.store import format as fmt
from torchdoctor.store import streams
from torchdoctor.store.intake import row_batch
from torchdoctor.store.names import DIGEST, FACTS, SCALARS, SERIES, STATS, FileName
from torchdoctor.store.reader import open_run


@pytest.mark.parametrize("table", ["scalars", "series", "facts", "stats"])
def test_a_stream_cut_off_at_every_byte_reads_up_to_its_last_whole_batch(small: Path, table: str) -> None:
    data = next(small.glob(f"{table}-*.arrow")).read_bytes()
    whole = streams.scan(pa.py_buffer(data))
    assert whole is not None and whole.closed and whole.rows
    known, starts = 0, False
    for size in range(len(data) + 1):
        part = pa.py_buffer(data[:size])
        stream = streams.scan(part)
        assert stream is not None or not starts
        if stream is None:
            continue
        starts = True
        assert stream.rows >= known and stream.end <= size
        if stream.rows > known:
            assert sum(b.num_rows for b in streams.read_batches(part, stream)) == stream.rows
        known = stream.rows
    assert known == whole.rows


@pytest.mark.parametrize("table", ["scalars", "series", "facts", "stats"])
def test_a_run_reads_wherever_one_of_its_files_is_cut_off(small: Path, table: str, tmp_path: Path) -> None:
    whole = open_run(small)
    file = next(small.glob(f"{table}-*.arrow"))
    folder = tmp_path / "run"
    shutil.copytree(small, folder)
    total, rows = file.stat().st_size, []
    moments = random.Random(1)
    for size in (total, *sorted((moments.randrange(total) for _ in range(40)), reverse=True), 0):
        os.truncate(folder / file.name, size)
        run = open_run(folder)
        rows.append(sum(read_everything(run).values()) + len(run.seen))
        for name in run.available:
            assert set(run.load(*name).steps) <= set(whole.load(*name).steps)
    assert rows == sorted(rows, reverse=True) and rows[-1] < rows[0]


def test_a_thinned_run_reads_wherever_it_is_cut_off(thinned: Path, tmp_path: Path) -> None:
    shutil.copytree(thinned, tmp_path / "run")
    moments = random.Random(0)
    for file in sorted(thinned.glob("*.arrow")):
        data = file.read_bytes()
        for size in (0, 1, *(moments.randrange(len(data)) for _ in range(6))):
            (tmp_path / "run" / file.name).write_bytes(data[:size])
            read_everything(open_run(tmp_path / "run"))
        (tmp_path / "run" / file.name).write_bytes(data)
    assert read_everything(open_run(tmp_path / "run")) == read_everything(open_run(thinned))


FLIPS = """
import random, struct, sys
from pathlib import Path
from torchdoctor.store.reader import open_run, read_histograms

folder, moments = Path(sys.argv[1]), random.Random(int(sys.argv[2]))
files = sorted(folder.glob("*.arrow"))
NUMBERS = {"<B": (0, 1, 127, 128, 255), "<H": (0, 4, 8, 65535), "<I": (0, 1, 2**31 - 1, 2**31, 2**32 - 1),
           "<Q": (0, 1, 2**33, 2**62, 2**63 - 1, 2**63, 2**64 - 1)}
for _ in range(int(sys.argv[3])):
    file = moments.choice(files)
    good = file.read_bytes()
    data = bytearray(good)
    for _ in range(moments.choice((1, 1, 2, 3, 20))):
        # headers are where harm is done, so most changes go to the first kilobytes
        at = moments.randrange(min(len(data), moments.choice((1200, 3000, len(data)))) - 8)
        size, values = moments.choice(list(NUMBERS.items()))
        struct.pack_into(size, data, at // 4 * 4 if size != "<B" else at, moments.choice(values))
    file.write_bytes(data)
    run = open_run(folder)
    for name in run.available:
        run.load(*name)
    read_histograms(folder, "gradient.l2")
    file.write_bytes(good)
print("survived")
"""


@pytest.mark.parametrize("which", ["small", "thinned"])
def test_flipped_bytes_crash_nothing(which: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """In a process of its own: a crash in native code must fail a test, not end them all."""
    folder = tmp_path / "run"
    shutil.copytree(request.getfixturevalue(which), folder)
    command = [sys.executable, "-c", FLIPS, str(folder), "7", "150" if which == "small" else "40"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.stdout == "survived\n", (done.returncode, done.stderr[-2000:])


def vector(rows: int, width: int) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(np.ones(rows * width, np.float32)), width)


def stats_batch(schema: pa.Schema, rows: int, width: int) -> pa.RecordBatch:
    steps = pa.array(np.arange(rows))
    return pa.record_batch([steps, steps, *(vector(rows, width) for _ in range(len(schema) - 2))], schema=schema)


def hostile_bomb(folder: Path) -> None:
    """Kilobytes that unfold to megabytes, and could as well to gigabytes: the reader must not unfold anything."""
    schema = fmt.stats_schema(("a",), ("gradient.l2",))
    write_stream(folder, STATS, schema, stats_batch(schema, 2**20, 1), compression="zstd")


def hostile_widths(folder: Path) -> None:
    """A list size of two billion, and columns that do not match their lists."""
    fields = [("row", pa.int64()), ("step", pa.int64()), ("gradient.l2", pa.list_(pa.float32(), 2**31 - 1))]
    huge = pa.schema(fields, metadata={fmt.META: json.dumps({"columns": ["a"]}).encode()})
    write_stream(folder, STATS, huge)
    wrong = fmt.stats_schema(("a", "b"), ("gradient.l2",))
    lying = wrong.with_metadata({fmt.META: json.dumps({"columns": ["a"] * 2}).encode()})
    write_stream(folder, STATS, lying, stats_batch(lying, 3, 2))
    for columns in (None, 7, [1, 2], ["a"], ["a", "b", "c"], {"a": 1}):
        other = wrong.with_metadata({fmt.META: json.dumps({"columns": columns}).encode()})
        write_stream(folder, STATS, other, stats_batch(other, 3, 2))


def hostile_unions(folder: Path) -> None:
    """Many rows of few columns, then many columns: together they would be a very large matrix."""
    few = fmt.stats_schema(("a",), ("gradient.l2",))
    write_stream(folder, STATS, few, stats_batch(few, 100_000, 1))
    for part in range(3):
        many = fmt.stats_schema(tuple(f"{part}.{i}" for i in range(60_000)), ("gradient.l2",))
        write_stream(folder, STATS, many, stats_batch(many, 1, 60_000).slice(0, 1))
        middle = stats_batch(many, 1, 60_000).set_column(0, "row", pa.array([500]))
        write_stream(folder, STATS, many, middle)


def hostile_types(folder: Path) -> None:
    """Types the store never writes: dictionaries, structures, nulls, other numbers."""
    meta = {fmt.META: json.dumps({"columns": ["a"]}).encode()}
    words = pa.array(["x", "y"]).dictionary_encode()
    schema = pa.schema([("step", words.type)], metadata=meta)
    write_stream(folder, SCALARS, schema, pa.record_batch([words], schema=schema))
    write_stream(folder, STATS, schema, pa.record_batch([words], schema=schema))
    nulls = pa.record_batch(
        [pa.array([1, None]), pa.array([0, 0], pa.int32()), pa.array([None, 1.0])], schema=fmt.SCALARS_SCHEMA
    )
    write_stream(folder, SCALARS, fmt.SCALARS_SCHEMA, nulls)
    inside = pa.FixedSizeListArray.from_arrays(pa.array([None, 1.0], pa.float32()), 1)
    stats = fmt.stats_schema(("a",), ("gradient.l2",))
    steps = pa.array([0, 1])
    write_stream(folder, STATS, stats, pa.record_batch([steps, steps, inside], schema=stats))
    nothing = pa.schema([], metadata=meta)
    write_stream(folder, DIGEST, nothing)


def hostile_facts(folder: Path) -> None:
    """Unknown kinds, wrong types, missing fields, JSON that is none, or very deep."""
    good = json.dumps({"optimizer": "0", "calls": ["step"]})
    texts = [
        ("order", "{"),
        ("order", "[" * 100_000),
        ("order", "[]"),
        ("order", "{}"),
        ("order", json.dumps({"optimizer": 3, "calls": ["step"]})),
        ("order", json.dumps({"optimizer": "0", "calls": "step"})),
        ("order", json.dumps({"optimizer": "0", "calls": [["deep"]]})),
        ("order", json.dumps({"optimizer": "0", "calls": [], "closure": 1})),
        ("parameter", json.dumps({"name": "a", "shape": [True], "dtype": "", "device": "", "module": ""})),
        ("__class__", good),
        ("Fact", good),
        ("", good),
        ("order", json.dumps({"optimizer": "0", "calls": ["step"], "from_the_future": 1})),
    ]
    rows = [(0, 0.0, kind, "", text) for kind, text in texts]
    write_stream(folder, FACTS, fmt.FACTS_SCHEMA, row_batch(rows, fmt.FACTS_SCHEMA))


def hostile_emptiness(folder: Path) -> None:
    """Batches without rows, and a signal without columns."""
    for schema, table in ((fmt.SCALARS_SCHEMA, SCALARS), (fmt.FACTS_SCHEMA, FACTS), (fmt.SERIES_SCHEMA, SERIES)):
        nothing = pa.record_batch([pa.array([], f.type) for f in schema], schema=schema)
        write_stream(folder, table, schema, nothing, nothing)
    for columns in ((), ("a",)):
        schema = fmt.stats_schema(columns, ("weight.l2",))
        none = schema.empty_table().to_batches() or [pa.record_batch([[], [], []], schema=schema)]
        write_stream(folder, STATS, schema, *none, *none)


def hostile_series(folder: Path) -> None:
    """Numbers of series that have no name, and names for numbers that have no data."""
    names = row_batch([(2**31 - 1, "x", "y"), (-5, LOSS, "")], fmt.SERIES_SCHEMA)
    write_stream(folder, SERIES, fmt.SERIES_SCHEMA, names)
    columns = [pa.array([2**62, -(2**62)]), pa.array([77, -5], pa.int32()), pa.array([1.0, 2.0])]
    write_stream(folder, SCALARS, fmt.SCALARS_SCHEMA, pa.record_batch(columns, schema=fmt.SCALARS_SCHEMA))


HOSTILE = [
    hostile_emptiness,
    hostile_bomb,
    hostile_widths,
    hostile_unions,
    hostile_types,
    hostile_facts,
    hostile_series,
]


READ = """
import resource, sys
from torchdoctor.store.reader import open_run
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
run = open_run(sys.argv[1])
for name in run.available:
    run.load(*name)
kinds = [type(s.fact).__name__ for s in run.seen]
taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(taken // 1024, kinds.count("OrderFact"), len(run.available))
"""


@pytest.mark.parametrize("attack", HOSTILE, ids=lambda attack: attack.__name__)
def test_a_hostile_run_is_read_without_harm(attack: Callable[[Path], None], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with recording(folder) as recorder:
        recorder.scalar(LOSS, 0, 1.0)
    attack(folder)
    done = subprocess.run([sys.executable, "-c", READ, folder], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    megabytes, orders, available = map(int, done.stdout.split())
    assert megabytes < 250
    assert orders == (1 if attack is hostile_facts else 0)
    assert available == (2 if attack is hostile_unions else 1)


def test_links_pipes_and_devices_are_not_opened(small: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(small, folder)
    secret = tmp_path / "secret.arrow"
    scalars = next(folder.glob("scalars-*"))
    scalars.rename(secret)
    scalars.symlink_to(secret)
    os.mkfifo(folder / str(FileName(STATS, 0, 0, 1, 900)))
    (folder / str(FileName(FACTS, 0, 0, 1, 901))).symlink_to("/dev/zero")
    (folder / str(FileName(DIGEST, 0, 0, 1, 902))).mkdir()
    run = open_run(folder)
    assert not run.has(signals.LOSS_TRAIN) and run.has(signals.GRADIENT_L2)
    assert streams.map_file(scalars) is None
