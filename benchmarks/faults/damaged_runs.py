"""Truncation, bit flips and bombs in every file of a run: a sentence or a result, never a traceback, hang or flood of memory."""

import json
import os
import random
import shutil
import struct
from pathlib import Path

from harness import DOCTOR, GIB, SCRIPTS, WORK, Line, call, campaign_test, command, fresh, inside, runs_in, warm

SECONDS, MOST = 30.0, 2 * GIB


def nan_run() -> Path:
    folder = WORK / "nan-sample"
    if not runs_in(folder):
        call([DOCTOR, "run", "--out", str(folder), str(SCRIPTS / "nan.py")], WORK, 120)
    return runs_in(folder)[0]


def look(run: Path) -> list[tuple[str, object]]:
    """The verdict and the page of the ui in one child, the report in another one where WIDE is set."""

    def both() -> int | None:
        try:
            command("diagnose", str(run))()
        except SystemExit as gone:
            print("status", gone.code, flush=True)
        serve(run)
        return 0

    ends = [("diagnose and ui", inside(both, 2 * SECONDS))]
    if os.environ.get("WIDE"):
        ends.append(("report", inside(command("report", str(run), "--with-captures", "-o", os.devnull), SECONDS)))
    return ends


def serve(run: Path) -> None:
    """What the pages of the ui are made from, without the server."""
    from torchdoctor.errors import TorchdoctorError
    from torchdoctor.settings import Settings
    from torchdoctor.store.captured import open_capture
    from torchdoctor.store.captures import list_captures
    from torchdoctor.ui.library import Library
    from torchdoctor.ui.overview import survey
    from torchdoctor.ui.state import Wanted, describe_state, run_page

    library = Library(run.parent, Settings())
    try:
        survey(library)
        run_page(library, run.name, "t", "")
        describe_state(library, run.name, Wanted("", [], [], None, ""))
        for entry in list_captures(run):
            try:
                with open_capture(entry.path) as capture:
                    for _name in list(capture.names if hasattr(capture, "names") else [])[:3]:
                        pass
            except TorchdoctorError as error:
                print(error)
    except TorchdoctorError as error:
        print(error)


def judge(what: str, ends, notes: list[str]) -> int:
    failed = 0
    for words, end in ends:
        bad = end.hung or end.traceback or (end.rc or 0) < 0 or end.rc in (70, 1) or end.peak > MOST
        if bad:
            failed += 1
            last = [x for x in end.said.strip().splitlines() if x.strip()][-1:] or [""]
            where = [x.strip() for x in end.said.splitlines() if "/torchdoctor/" in x and "File" in x][-1:] or [""]
            notes.append(
                f"{what}, {words}: rc {end.rc} hung {end.hung} {end.seconds:.1f} s {end.peak >> 20} MB: {where[0][-110:]} {last[0][:200]}"
            )
    return failed


@campaign_test("damage")
def damage():
    origin = nan_run()
    warm(origin)
    files = sorted(p.relative_to(origin) for p in origin.rglob("*") if p.is_file())
    dice = random.Random(3)
    each = int(os.environ.get("DAMAGE", 6))
    for kind, spoil in (
        ("truncation", cut),
        ("bit flips", flip),
        ("zeros over 64 bytes", zero),
        ("0xff over 16 bytes", ones),
        ("random bytes over 256", noise),
        ("a slice doubled", double),
    ):
        tried = failed = 0
        notes: list[str] = []
        for file in files:
            for _ in range(each):
                folder = fresh("damage")
                run = folder / "run"
                shutil.copytree(origin, run)
                path = run / file
                path.chmod(0o600)
                data = bytearray(path.read_bytes())
                if not data:
                    continue
                at = spoil(data, dice)
                path.write_bytes(data)
                ends = look(run)
                tried += len(ends)
                failed += judge(f"{file} {kind} {at}", ends, notes)
        yield Line(f"damage: {kind}", tried, failed, notes)


def cut(data, dice):
    at = dice.choice(
        (dice.randrange(len(data)), max(0, len(data) - dice.randrange(1, 300)), dice.randrange(min(len(data), 900)))
    )
    del data[at:]
    return at


def flip(data, dice):
    at = dice.choice((dice.randrange(len(data)), dice.randrange(min(len(data), 1200))))
    data[at] ^= 1 << dice.randrange(8)
    return at


def put(data, at, what):
    data[at : at + len(what)] = what[: max(0, len(data) - at)]


def zero(data, dice):
    at = dice.randrange(len(data))
    put(data, at, bytes(64))
    return at


def ones(data, dice):
    at = dice.randrange(len(data))
    put(data, at, b"\xff" * 16)
    return at


def noise(data, dice):
    at = dice.randrange(len(data))
    put(data, at, dice.randbytes(256))
    return at


def double(data, dice):
    at = dice.randrange(len(data))
    data[at:at] = data[max(0, at - 512) : at]
    return at


def bombs(run: Path):
    """(name, what to do with the run)"""
    info = json.loads((run / "run.json").read_text())
    arrow = next(run.glob("scalars-*.arrow"))
    facts = next(run.glob("facts-*.arrow"))
    capture = next((run / "captures").glob("*"), None) if (run / "captures").is_dir() else None

    def write_info(**more):
        (run / "run.json").write_text(json.dumps({**info, **more}))

    import pyarrow as pa

    def stream(path, batches, compressed=None):
        options = pa.ipc.IpcWriteOptions(compression=compressed)
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, batches[0].schema, options=options) as writer:
            for batch in batches:
                writer.write_batch(batch)

    def rewritten(path, change, compressed=None, times=1):
        batches = list(pa.ipc.open_stream(path.read_bytes()))
        stream(path, [change(b) for b in batches] * times, compressed)

    def big_series():
        path = next(run.glob("series-*.arrow"))
        schema = pa.ipc.open_stream(path.read_bytes()).schema
        n = 1_000_000
        stream(
            path,
            [
                pa.record_batch(
                    [pa.array(range(n), pa.int32()), pa.array([f"s{i}" for i in range(n)]), pa.array([""] * n)],
                    schema=schema,
                )
            ],
        )

    def far_steps(value):
        def change(batch):
            return batch.set_column(0, batch.schema.field(0), pa.array([value] * batch.num_rows, pa.int64()))

        rewritten(arrow, change)

    def fact_texts(text):
        def change(batch):
            at = batch.schema.get_field_index("data")
            return batch.set_column(at, batch.schema.field(at), pa.array([text] * batch.num_rows))

        rewritten(facts, change)

    def columns_bomb(count):
        path = next(run.glob("stats-*.arrow"))
        reader = pa.ipc.open_stream(path.read_bytes())
        meta = json.loads(reader.schema.metadata[b"torchdoctor"])
        names = [f"c{i}" for i in range(count)]
        vector = pa.list_(pa.float32(), count)
        schema = pa.schema(
            [("row", pa.int64()), ("step", pa.int64()), ("grad.norm", vector)],
            metadata={b"torchdoctor": json.dumps({**meta, "columns": names}).encode()},
        )
        flat = pa.FixedSizeListArray.from_arrays(pa.array([1.0] * count, pa.float32()), count)
        stream(path, [pa.record_batch([pa.array([0]), pa.array([5]), flat], schema=schema)])

    def sparse(path, size):
        os.truncate(path, size)

    def safetensors(header: bytes, length=None):
        path = capture / "tensors.safetensors"
        path.chmod(0o600)
        path.write_bytes(struct.pack("<Q", len(header) if length is None else length) + header)

    found = {
        "run.json 10,000 deep": lambda: (run / "run.json").write_text("[" * 10_000),
        "run.json 200,000 deep in a field": lambda: (run / "run.json").write_text(
            json.dumps(info)[:-1] + ', "x": ' + '{"a":' * 200_000 + "1" + "}" * 200_000 + "}"
        ),
        "run.json 1 GB sparse": lambda: sparse(run / "run.json", 1 << 30),
        "run.json 15 MB of argv": lambda: write_info(argv=["a" * 100] * 140_000),
        "run.json one 15 MB word": lambda: write_info(argv=["train.py", "x" * 15_000_000]),
        "run.json odd types": lambda: write_info(
            argv={"a": 1},
            cwd=[],
            seeds="x",
            steps="many",
            started="now",
            sessions=7,
            packages=[1],
            hardware=None,
            git=[],
            process=3,
            rank="r",
            dropped=[1],
            environment=5,
            ended={},
            status=[],
            thinned=3,
            name=4,
            python=1,
        ),
        "run.json steps 10**400": lambda: (run / "run.json").write_text(
            json.dumps(info)[:-1] + ', "steps": 1' + "0" * 400 + "}"
        ),
        "run.json digits 10**5000": lambda: (run / "run.json").write_text(
            json.dumps(info)[:-1] + ', "started": 1' + "0" * 5000 + "}"
        ),
        "run.json NaN and Infinity": lambda: (run / "run.json").write_text(
            json.dumps({**info, "started": float("nan"), "ended": float("inf"), "steps": 1})
        ),
        "run.json dates far off": lambda: write_info(started=1e300, ended=-1e300),
        "run.json started 1e15": lambda: write_info(started=1e15, ended=1e16),
        "run.json surrogates": lambda: (run / "run.json").write_text(
            json.dumps({**info, "argv": ["\ud800.py", "\x00\x1b]0;x\x07"]})
        ),
        "run.json not UTF-8": lambda: (run / "run.json").write_bytes(
            json.dumps(info).encode().replace(b"plain", b"\xff\xfe") + b"\xff"
        ),
        "run.json UTF-16": lambda: (run / "run.json").write_bytes(json.dumps(info).encode("utf-16")),
        "arrow 1 TB sparse": lambda: sparse(arrow, 1 << 40),
        "arrow 4 GB sparse": lambda: sparse(facts, 4 << 30),
        "arrow of zeros": lambda: arrow.write_bytes(bytes(100_000)),
        "arrow length 2 GB": lambda: arrow.write_bytes(b"\xff\xff\xff\xff" + struct.pack("<i", 2**31 - 8) + bytes(100)),
        "arrow length negative": lambda: arrow.write_bytes(b"\xff\xff\xff\xff" + struct.pack("<i", -5) + bytes(100)),
        "arrow compressed lz4": lambda: rewritten(arrow, lambda b: b, "lz4"),
        "arrow compressed zstd bomb": lambda: stream(
            facts,
            [
                pa.record_batch(
                    [pa.array([1]), pa.array([1.0]), pa.array(["x"]), pa.array(["y"]), pa.array(["z" * 500_000_000])],
                    names=["step", "time", "kind", "subject", "data"],
                )
            ],
            "zstd",
        ),
        "scalars steps 2**62": lambda: far_steps(2**62),
        "scalars steps -2**62": lambda: far_steps(-(2**62)),
        "scalars repeated 200 times": lambda: rewritten(arrow, lambda b: b, times=200),
        "facts repeated 300 times": lambda: rewritten(facts, lambda b: b, times=300),
        "a million series": big_series,
        "65,000 columns": lambda: columns_bomb(65_000),
        "facts of deep JSON": lambda: fact_texts("[" * 50_000),
        "facts of 1 MB texts": lambda: fact_texts(json.dumps({"x": "y" * 1_000_000})),
        "facts of null": lambda: fact_texts("null"),
        "facts of numbers": lambda: fact_texts("1e999"),
        "facts of empty": lambda: fact_texts(""),
        "facts of {}": lambda: fact_texts("{}"),
        "100,000 empty files": lambda: [
            (run / f"scalars-r0-s000-p1-{i + 100:06d}.arrow").touch() for i in range(100_000)
        ],
        "999 sessions": lambda: [
            shutil.copy(arrow, run / f"scalars-r0-s{i:03d}-p1-000002.arrow") for i in range(1, 999)
        ],
        "999,999 ranks": lambda: [shutil.copy(run / "run.json", run / f"run-r{i}.json") for i in range(1, 3000)],
        "fifo as run.json": lambda: ((run / "run.json").unlink(), os.mkfifo(run / "run.json")),
        "fifo as arrow": lambda: (arrow.unlink(), os.mkfifo(arrow)),
        "device as arrow": lambda: (arrow.unlink(), arrow.symlink_to("/dev/zero")),
        "run.json links to /etc/passwd": lambda: (
            (run / "run.json").unlink(),
            (run / "run.json").symlink_to("/etc/passwd"),
        ),
        "arrow is a folder": lambda: (arrow.unlink(), arrow.mkdir()),
        "captures links elsewhere": lambda: (shutil.rmtree(run / "captures"), (run / "captures").symlink_to("/etc")),
        "captures is a file": lambda: (shutil.rmtree(run / "captures"), (run / "captures").write_text("x")),
        "captures a link to itself": lambda: (run / "captures" / "loop").symlink_to("."),
        "journal 100 MB line": lambda: (run / "journal.jsonl").write_text('{"text":"' + "x" * 100_000_000 + '"}'),
        "journal 300,000 lines": lambda: (run / "journal.jsonl").write_text('{"text":"x","time":1}\n' * 300_000),
        "journal odd": lambda: (run / "journal.jsonl").write_text(
            '[]\n1\n{"text":5}\n{"time":"x","text":"y"}\nNaN\n{"text":"a","time":1e400}\n'
        ),
        "replays odd": lambda: (run / "replays.jsonl").write_text('[]\n1\n{"step":5}\n{"step":"x"}\n' + "[" * 20_000),
        "journal fifo": lambda: os.mkfifo(run / "journal.jsonl"),
        "unreadable arrow": lambda: arrow.chmod(0),
        "empty run.json": lambda: (run / "run.json").write_bytes(b""),
        "only run.json": lambda: [p.unlink() for p in run.glob("*.arrow")],
    }
    if capture is not None:
        document = json.loads((capture / "capture.json").read_text())
        deep: object = 1
        for _ in range(300):
            deep = {"list": [deep]}
        found |= {
            "safetensors header 16 EB": lambda: safetensors(b"{}", 2**63),
            "safetensors header 100 GB": lambda: safetensors(b"{}", 100 << 30),
            "safetensors header deep": lambda: safetensors(b"[" * 100_000),
            "safetensors shape 2**60": lambda: safetensors(
                json.dumps({"batch/x": {"dtype": "F32", "shape": [2**60, 2**60], "data_offsets": [0, 4]}}).encode()
            ),
            "safetensors overlapping": lambda: safetensors(
                json.dumps(
                    {f"batch/x{i}": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]} for i in range(50_000)}
                ).encode()
                + bytes(4)
            ),
            "safetensors negative": lambda: safetensors(
                json.dumps({"batch/x": {"dtype": "F32", "shape": [-1], "data_offsets": [0, -4]}}).encode()
            ),
            "capture.json deep": lambda: (capture / "capture.json").write_text(
                json.dumps({**document, "batch": 0})[:-1] + ',"structure":' + "[" * 50_000 + "]" * 50_000 + "}"
            ),
            "capture.json odd types": lambda: (capture / "capture.json").write_text(
                json.dumps({k: [None] for k in document})
            ),
            "capture.json 1 GB": lambda: sparse(capture / "capture.json", 1 << 30),
            "capture is a pickle": lambda: (
                safetensors(b"", None)
                or (capture / "tensors.safetensors").write_bytes(b"\x80\x04cos\nsystem\n(S'touch /tmp/rf/pwned'\ntR.")
            ),
            "capture is a zip": lambda: (capture / "tensors.safetensors").write_bytes(b"PK\x03\x04" + bytes(200)),
            "capture fifo": lambda: (
                (capture / "tensors.safetensors").unlink(),
                os.mkfifo(capture / "tensors.safetensors"),
            ),
            "10,000 captures": lambda: [
                (run / "captures" / f"step-{i:06d}-nonfinite").mkdir(exist_ok=True) for i in range(10_000)
            ],
        }
    return found


@campaign_test("bomb")
def bomb():
    origin = nan_run()
    warm(origin)
    names = list(bombs(origin))
    for name in names:
        if os.environ.get("ONLY") and os.environ["ONLY"] not in name:
            continue
        folder = fresh("bomb")
        run = folder / "run"
        shutil.copytree(origin, run)
        notes: list[str] = []
        try:
            bombs(run)[name]()
        except Exception as error:
            yield Line(f"bomb: {name}", 0, 0, [f"could not be made: {error!r}"])
            continue
        ends = look(run)
        if "capture" in name or "safetensors" in name or "run.json" in name:
            ends.append(("replay", inside(command("replay", str(run)), SECONDS)))
        failed = judge(name, ends, notes)
        heavy = [
            f"{words}: {end.seconds:.1f} s {end.peak >> 20} MB"
            for words, end in ends
            if end.seconds > 5 or end.peak > 512 << 20
        ]
        said = [x.strip() for x in ends[-1][1].said.splitlines() if x.strip() and "status" not in x][-1:]
        yield Line(f"bomb: {name}", len(ends), failed, [*notes, *heavy, *(f"said: {x[:200]}" for x in said)])
    shutil.rmtree(WORK / "bomb", ignore_errors=True)
