"""The words for autograd's in-place error."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from torchdoctor.probes.clash import Changed, Clash, Kept, explain, is_clash, versions

MESSAGE = (
    "one of the variables needed for gradient computation has been modified by an inplace operation: "
    "[torch.FloatTensor [4, 3]], which is output 0 of ExpBackward0, is at version 3; expected version 1 instead."
)
KEPT = Kept("ExpBackward0", "result", "/home/me/train.py", 7, "h = x.exp()")


def changed(operation: str, code: str, **more: object) -> Clash:
    return Clash(KEPT, Changed(operation, file="/home/me/train.py", line=8, code=code, **more))  # type: ignore[arg-type]


def test_the_error_is_known_by_its_words() -> None:
    assert is_clash(MESSAGE)
    assert versions(MESSAGE) == (3, 1)
    assert not is_clash("a leaf Variable that requires grad is being used in an in-place operation.")
    assert versions("something else") == (None, None)


@pytest.mark.parametrize(
    ("operation", "code", "instead"),
    [
        ("add_", "h += 1", "h = h + 1"),
        ("mul_", "self.h *= scale[0]", "self.h = self.h * scale[0]"),
        ("clamp_", "h.clamp_(min=0)", "h = h.clamp(min=0)"),
        ("relu_", "torch.relu_(h)", "h = torch.relu(h)"),
        ("sigmoid_", "g = h.sigmoid_()", "g = h.sigmoid()"),
        ("add_", "for h in parts: h += 1", None),
        ("add_", "h = update(h,", None),
    ],
)
def test_the_line_out_of_place(operation: str, code: str, instead: str | None) -> None:
    assert explain(changed(operation, code)).get("code") == instead


@pytest.mark.parametrize("code", ["h[:, t] = step(h)", "h[t] += 1"])
def test_an_assignment_into_a_part_is_joined_instead(code: str) -> None:
    told = explain(changed("copy_", code))
    assert "an assignment into part of it at train.py:8" in told["text"]
    assert "torch.stack" in told["instead"]


def test_a_layer_that_works_in_place() -> None:
    told = explain(changed("relu_", "return self.net(x)", module="net.2"))
    assert told["instead"].startswith("Switch off inplace=True in net.2")
    assert "code" not in told


def test_an_update_is_no_operation_of_the_users() -> None:
    clash = changed("addcdiv_", "d_opt.step()", updating=True)
    clash.parameter = "fc.weight"
    told = explain(clash)
    assert "kept the weight fc.weight" in told["text"]
    assert "an optimizer's step at train.py:8" in told["text"]
    assert "GAN" in told["instead"]


def test_a_graph_of_an_earlier_step() -> None:
    told = explain(Clash(KEPT, parameter="fc.weight", reason="before", earlier=True))
    assert told["code"] == "state = state.detach()"
    assert "reason" not in told


def test_what_is_not_known_is_said() -> None:
    told = explain(Clash(None, reason="only on Linux"))
    assert told["reason"] == "only on Linux"
    assert "kept" not in told
    assert "changed" not in told


def test_it_travels_through_a_pipe() -> None:
    clash = changed("add_", "h += 1")
    assert Clash.from_dict(asdict(clash)) == clash
    assert Clash.from_dict({}) == Clash()
