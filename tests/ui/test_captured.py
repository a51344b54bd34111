"""Captures, replays and checks on a run's page: shown where there are any, in part read, and trusted in nothing."""

from __future__ import annotations

import json
import resource
from pathlib import Path
from typing import Any

import pytest
import torch
from starlette.testclient import TestClient

from browser.test_report import PAYLOADS
from capturing import STEP, capture_by_hand, capture_pictures, document
from recording import record
from torchdoctor.facts import BirthFact
from torchdoctor.report.html import describe
from torchdoctor.store.checked import Checked, Made, keep_check
from torchdoctor.store.replays import REPLAYS, Replayed, keep_replay
from torchdoctor.telling import tell, tell_kept

NAME = f"step-{STEP:06d}-nonfinite"
BIRTH = BirthFact("log", False, "inf", [[0.0, 0.5]], [0.0], [[40]], "float32", samples=[25], count=1, total=40)


@pytest.fixture
def captured(runs: Path) -> Path:
    run = record(runs / "captured", facts=(BIRTH,), cwd="/work/project", script_sha256="ab" * 32)
    capture_pictures(run)
    return run


def kept(client: TestClient, name: str = "captured", **asked: str) -> Any:
    answer = client.get(f"/api/run/{name}/captures", params=asked)
    assert answer.status_code == 200, answer.text
    return answer.json()


def preview(client: TestClient, name: str = "captured", capture: str = NAME) -> Any:
    return client.get(f"/api/run/{name}/captures/{capture}")


def test_a_capture_says_what_it_holds_and_how_to_run_it_again(client: TestClient, captured: Path) -> None:
    html = kept(client)["parts"]["captures"]
    assert "Step 30: the loss or a gradient was not finite" in html
    assert "0: 40 x 3 x 8 x 8 float32 and 1: 40 int64" in html
    assert "1 tensor, 3.1 KB" in html and "Adam, with its state of 1 tensor" in html
    assert f"torchdoctor replay {captured} --step 30" in html and f'data-chart="captured-{NAME}"' in html


def test_runs_without_captures_show_no_section(client: TestClient, captured: Path) -> None:
    assert 'id="captures" aria-label="Captured steps">' in client.get("/run/captured").text
    assert 'id="captures" aria-label="Captured steps" hidden>' in client.get("/run/well").text
    found = kept(client, "well")
    assert not found["any"] and found["parts"]["captures"].strip() == ""


def test_what_the_page_has_is_not_sent_again(client: TestClient, captured: Path) -> None:
    stamp = kept(client)["stamp"]
    assert kept(client, since=stamp) == {}
    keep_replay(captured, Replayed(1.8e9, STEP, NAME, ["train.py"], compared=True, birth=BIRTH))
    found = kept(client, since=stamp)
    assert "The same to the bit as in the run" in found["parts"]["replays"]
    assert "log of 0 gave Inf" in found["parts"]["replays"]


def test_the_samples_that_broke_are_shown_apart(client: TestClient, runs: Path) -> None:
    run = record(runs / "captured")
    capture_pictures(run)
    chart = preview(client).json()["chart"]
    assert chart["title"] == "40 samples in the batch of step 30"
    keep_replay(run, Replayed(1.8e9, STEP, NAME, ["train.py"], birth=BIRTH))
    chart = preview(client).json()["chart"]
    assert chart["title"].endswith("the first value that is not finite is in sample 25")
    shown = json.dumps(chart)
    assert "#25" in shown and "label 1" in shown and "where it broke" in shown


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2, torch.uint8])
def test_pictures_of_any_type_are_drawn(client: TestClient, runs: Path, dtype: torch.dtype) -> None:
    capture_pictures(record(runs / "captured"), dtype)
    assert "data:image/png" in preview(client).text


def test_only_captures_of_the_run_are_found(client: TestClient, stranger: TestClient, captured: Path) -> None:
    assert preview(client, capture="step-000031-nonfinite").status_code == 404
    assert preview(client, capture="%2e%2e%2f%2e%2e").status_code == 404
    assert preview(client, capture="..%2f..%2fwell").status_code == 404
    assert preview(client, name="none").status_code == 404
    assert client.post("/api/run/captured/captures").status_code == 405
    stranger.cookies.clear()
    for path in ("captures", f"captures/{NAME}"):
        assert stranger.get(f"/api/run/captured/{path}").status_code == 403


def test_two_gibibytes_are_not_read_for_a_preview(client: TestClient, runs: Path) -> None:
    run = record(runs / "captured")
    size = 2 << 30
    header = {"batch/0": {"dtype": "U8", "shape": [size // 4096, 64, 64], "data_offsets": [0, size]}}
    capture_by_hand(run, NAME, document(batches=[{"kind": "tensor", "name": "batch/0"}]), header, size)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert "data:image/png" in preview(client).text
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000


def hostile(run: Path, payload: str) -> None:
    header = {"batch/0": {"dtype": "F32", "shape": [4, 8, 8], "data_offsets": [0, 1024]}}
    nested = {"kind": "dict", "keys": [payload], "items": [{"kind": "tensor", "name": "batch/0"}], "type": payload}
    odd = {"kind": "left_out", "type": payload}
    described = document(
        reason=payload,
        batches=[{"kind": "list", "items": [nested, odd]}],
        optimizers=[{"type": payload}],
        left_out={payload: payload},
        notice=payload,
        models=[{"name": payload, "type": payload}],
        sources={payload: payload},
        losses=[payload],
    )
    capture_by_hand(run, NAME, described, header, 1024)
    birth = BirthFact(
        payload, False, payload, code=payload, chain=[payload], noticed=payload, samples=[2], file=payload
    )
    texts = {"change": payload, "raised": payload, "reason": payload, "diagnosis": payload, "diagnosis_title": payload}
    more = {"differs": [payload], "changed_sources": [payload]}
    keep_replay(run, Replayed(1.0, STEP, payload, [payload], compared=True, birth=birth, **texts, **more))  # type: ignore[arg-type]
    made = Made(payload, "model", payload, payload, False, "error", payload)
    keep_check(
        run.parent, Checked(1.0, "/x/train.py", payload, [payload], problem=payload, checks=[made], faults=[payload])
    )


@pytest.mark.parametrize("payload", PAYLOADS, ids=range(len(PAYLOADS)))
def test_what_strings_hold_is_never_markup(client: TestClient, runs: Path, payload: str) -> None:
    run = record(runs / "captured", cwd="/x")
    hostile(run, payload)
    found = kept(client)
    html = "".join(found["parts"].values())
    assert "Not readable" not in html and found["any"] and "1 failed" in found["parts"]["preflight"]
    for mark in ("<img", "<svg", "<script", "54173879", "\x1b", "\u202e"):
        assert mark not in html
    answer = preview(client).json()
    assert "<" not in answer["chart"]["title"]
    opened = tell(run)
    page = describe(opened.told, "0") | {"kept": tell_kept(run, opened.run, previews=True)}
    assert "\x1b" not in json.dumps(page["checklist"])


WRONG: dict[str, tuple[Any, dict[str, Any], int]] = {
    "claims more than there is": (
        document(),
        {"batch/0": {"dtype": "F32", "shape": [1 << 40, 1 << 40], "data_offsets": [0, 64]}},
        64,
    ),
    "overlaps": (
        document(),
        {f"batch/{i}": {"dtype": "U8", "shape": [64], "data_offsets": [0, 64]} for i in (0, 1)},
        64,
    ),
    "no JSON": ("{", {}, 0),
    "a deep document": ('{"batches": ' + "[" * 5000 + "]" * 5000 + "}", {}, 0),
    "a name that leads elsewhere": (document(), {"../x": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}, 1),
    "a newer one": (document(format=99), {}, 0),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_damaged_capture_is_listed_with_what_is_wrong(client: TestClient, runs: Path, wrong: str) -> None:
    run = record(runs / "captured")
    capture_by_hand(run, NAME, *WRONG[wrong])
    assert "Not readable" in kept(client)["parts"]["captures"]
    assert preview(client).json().keys() == {"problem"}
    assert client.get("/run/captured").status_code == 200


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"dtype": "F32", "shape": [1, 1 << 28], "data_offsets": [0, 1 << 30]}, "a sample has 1.1 GB"),
        ({"dtype": "F32", "shape": [0, 8, 8], "data_offsets": [0, 0]}, "no tensor with an entry a sample"),
        ({"dtype": "F32", "shape": [8, 0], "data_offsets": [0, 0]}, "a sample has 0 B"),
        ({"dtype": "F32", "shape": [], "data_offsets": [0, 4]}, "no tensor with an entry a sample"),
        ({"dtype": "F32", "shape": [2, *[1] * 62, 2], "data_offsets": [0, 16]}, ""),
        ({"dtype": "U64", "shape": [4, 3, 40000], "data_offsets": [0, 3840000]}, ""),
    ],
    ids=["a huge sample", "no samples", "empty samples", "a number", "64 dimensions", "long rows"],
)
def test_batches_of_odd_shapes_do_no_harm(client: TestClient, runs: Path, entry: dict[str, Any], said: str) -> None:
    described = document(batches=[{"kind": "tensor", "name": "batch/0"}])
    capture_by_hand(record(runs / "captured"), NAME, described, {"batch/0": entry}, entry["data_offsets"][1])
    answer = preview(client)
    assert answer.status_code == 200, answer.text
    assert said in answer.json().get("problem", "") if said else "chart" in answer.json()
    assert len(answer.content) < 2_000_000


def test_nothing_but_nan_is_drawn_too(client: TestClient, runs: Path) -> None:
    run = record(runs / "captured")
    folder = capture_pictures(run, torch.float32)
    data = bytearray((folder / "tensors.safetensors").read_bytes())
    begin = 8 + int.from_bytes(data[:8], "little")
    data[begin:] = b"\xff" * (len(data) - begin)
    (folder / "tensors.safetensors").write_bytes(data)
    assert preview(client).status_code == 200


def test_the_check_of_the_script_is_shown_with_its_age(client: TestClient, captured: Path, runs: Path) -> None:
    assert f"torchdoctor check --out {runs} train.py --lr 0.1" in kept(client)["parts"]["preflight"]
    made = [
        Made("a", "data", "no input is the target", "one is", False, "warning", "target-leak"),
        Made("b", "model", "x", "y"),
    ]
    began = json.loads((captured / "run.json").read_text())["started"]
    checked = Checked(began - 7300, "/work/project/train.py", "ab" * 32, ["train.py"], checks=made)
    keep_check(runs, checked)
    html = kept(client)["parts"]["preflight"]
    assert "0 checks passed, 1 failed, 1 could not be made" in html and "2 hours before this run began" in html
    assert "The script is still the same" in html and "target-leak" in html
    keep_check(runs, Checked(began - 60, "/work/project/train.py", "cd" * 32, ["train.py"], checks=made))
    assert "it changed between the check and this run" in kept(client)["parts"]["preflight"]


def test_lines_of_replays_that_are_damaged_hide_nothing_else(client: TestClient, captured: Path) -> None:
    (captured / REPLAYS).write_bytes(b"\xff\n{}\n" + b"[" * 70_000)
    assert "Step 30" in kept(client)["parts"]["captures"] and kept(client)["parts"]["replays"].strip() == ""
