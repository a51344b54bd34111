"""A loop that is sent back to the beginning of its body."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from torchdoctor.probes.rewind import find_loop, is_repeatable, loop_around, to_loop_start


def test_the_body_runs_again_with_the_same_variables() -> None:
    seen: list[int] = []
    jumps: list[str] = []
    for number in range(3):
        seen.append(number)
        if number == 1 and not jumps:
            assert to_loop_start(lambda: jumps.append("back"))
        seen.append(10 * number)
    assert seen == [0, 0, 1, 1, 10, 2, 20]
    assert jumps == ["back"]


def test_from_a_function_the_loop_that_called_it_is_run_again() -> None:
    seen: list[int] = []
    jumps: list[str] = []

    def train(number: int) -> None:
        if number == 1 and not jumps:
            to_loop_start(lambda: jumps.append("back"))
        seen.append(10 * number)

    for number in range(2):
        seen.append(number)
        train(number)
    assert seen == [0, 0, 1, 10, 1, 10]


def test_without_a_loop_nothing_happens() -> None:
    def alone() -> bool:
        return find_loop(sys._getframe(0)) is not None

    assert not alone()


@pytest.mark.parametrize(("line", "start"), [(1, None), (2, None), (3, 3), (5, 5), (6, 3), (9, None)])
def test_the_innermost_loop_counts(tmp_path: Path, line: int, start: int | None) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import torch\n"
        "for epoch in range(2):\n"
        "    print(epoch)\n"
        "    while True:\n"
        "        break\n"
        "    print('end')\n"
        "for x in ():\n"
        "    def inside():\n"
        "        return 1\n"
    )
    loop = loop_around(str(script), line)
    assert (loop.body[0].lineno if loop is not None else None) == start


@pytest.mark.parametrize(
    ("body", "repeatable"),
    [
        ("x, y = x.to(device), y.to(device)", True),
        ("h = model(x)", True),
        ("total += loss.item()", True),
        ("x = x.unsqueeze(1)", False),
        ("x = torch.log(x)", False),
        ("x /= 255", False),
    ],
)
def test_a_body_that_remakes_what_it_was_given_is_not_run_twice(body: str, repeatable: bool) -> None:
    (loop,) = ast.parse(f"for step, (x, y) in enumerate(loader):\n    {body}").body
    assert isinstance(loop, ast.For)
    assert is_repeatable(loop) == repeatable


def test_a_loop_that_is_not_run_twice_is_not_passed_over_for_one_outside() -> None:
    """The outer loop's body is many steps."""
    seen: list[bool] = []

    def train() -> None:
        for x in (1.0, 2.0):
            x = x * 2.0
            seen.append(to_loop_start(lambda: None))

    for _ in range(1):
        train()
    assert seen == [False, False]
