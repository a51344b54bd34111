from __future__ import annotations

from typing import Any

from building import RunBuilder, findings
from torchdoctor.facts import TokenTargetsFact
from torchdoctor.findings import RuledOut, Severity

NAME = "missing-target-shift"


def look(**given: Any) -> RunBuilder:
    shape = {"input_shape": [8, 32], "target_shape": [256], "same": 0.1, "following": 0.1}
    return RunBuilder(50).fact(TokenTargetsFact(**(shape | given)))


def test_targets_that_are_the_inputs() -> None:
    (found,) = findings(look(same=1.0, following=0.0, causal=2, by_position=True).build(), NAME)
    assert found.severity is Severity.ERROR and "ids[:, 1:]" in (found.fix.code or "")


def test_an_autoencoder_with_one_code_is_left_alone() -> None:
    assert not findings(look(same=1.0, following=0.0).build(), NAME)


def test_a_masked_model_is_left_alone() -> None:
    assert not findings(look(same=0.93, following=0.0, ahead=4, by_position=True).build(), NAME)


def test_attention_that_looks_ahead() -> None:
    (found,) = findings(look(following=1.0, same=0.0, ahead=2, by_position=True).build(), NAME)
    assert "causal" in found.fix.code or "is_causal" in found.fix.code


def test_a_recurrent_model_that_runs_both_ways() -> None:
    (found,) = findings(look(following=1.0, same=0.0, both_ways=["lstm"]).build(), NAME)
    assert found.where[0].module == "lstm"


def test_causal_attention_is_ruled_out() -> None:
    (said,) = look(following=1.0, same=0.0, causal=2).detect(NAME)
    assert isinstance(said, RuledOut)


def test_an_encoder_decoder_and_a_prefix_model_may_look_ahead_in_what_they_are_given() -> None:
    assert not findings(look(following=1.0, same=0.0, ahead=2, single=False).build(), NAME)
    assert not findings(look(following=1.0, same=0.0, ahead=2, ignored=0.3).build(), NAME)
    assert not findings(look(following=1.0, same=0.0, ahead=2, causal=2).build(), NAME)


def test_a_decoder_that_is_given_the_targets_in_most_looks() -> None:
    given = {"decoder": True, "single": False}
    run = look(same=1.0, following=0.0, **given).fact(TokenTargetsFact([8, 9], [8, 9], 1.0, 0.0, **given))
    (found,) = findings(run.build(), NAME)
    assert "decoder" in found.title
    run.fact(TokenTargetsFact([8, 9], [8, 9], 0.1, 0.9, **given)).fact(
        TokenTargetsFact([8, 9], [8, 9], 0.1, 0.9, **given)
    )
    assert not findings(run.build(), NAME)


def test_an_encoder_that_reads_the_targets_beside_a_shifted_decoder_copies_on_purpose() -> None:
    assert not findings(look(same=1.0, following=0.7, decoder=True, single=False).build(), NAME)
