"""What is a step, what trains, what validates: decided from events alone."""

from __future__ import annotations

import pytest

from torchdoctor.attach.loop import Loop, Pass
from torchdoctor.facts import TRAIN, UNKNOWN, VALIDATION


class Recorded:
    """A loop that keeps what it says."""

    def __init__(self) -> None:
        self.passes: list[Pass] = []
        self.validations: list[int] = []
        self.loop = Loop(self.passes.append, self.validations.append)
        self.loop.optimizer("0")

    def train(self, loader: tuple[int, str] | None = None, optimizer: str = "0", forwards: int = 1) -> None:
        if loader:
            self.loop.fetch(*loader)
        for _ in range(forwards):
            self.loop.forward("model", True, True)
        self.loop.loss(True)
        self.loop.backward()
        self.loop.optimizer_step(optimizer)

    def phases(self) -> list[str]:
        return [p.phase for p in self.passes]


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


def test_a_plain_loop_counts_its_updates(recorded: Recorded) -> None:
    for _ in range(5):
        recorded.train((1, "train"))
    recorded.loop.close()
    assert recorded.phases() == [TRAIN] * 5
    assert recorded.loop.updates == 5
    assert [p.step for p in recorded.passes] == [0, 1, 2, 3, 4]


def test_a_loader_that_never_leads_to_a_backward_validates(recorded: Recorded) -> None:
    loop = recorded.loop
    for epoch in range(2):
        for _ in range(3):
            recorded.train((10 + epoch, "train"))
        for _ in range(2):
            loop.fetch(20 + epoch, "val")
            loop.forward("model", False, False)
        loop.exhausted(20 + epoch)
    recorded.train((12, "train"))
    assert recorded.phases() == ([TRAIN] * 3 + [VALIDATION] * 2) * 2 + [TRAIN]
    assert recorded.validations == [3, 6]
    assert loop.loader_phases == {"train": TRAIN, "val": VALIDATION}


def test_validation_that_builds_a_graph_is_still_validation(recorded: Recorded) -> None:
    recorded.train((1, "train"))
    for _ in range(3):
        recorded.loop.fetch(2, "val")
        recorded.loop.forward("model", True, True)
    recorded.train((3, "train"))
    assert recorded.phases() == [TRAIN, VALIDATION, VALIDATION, VALIDATION, TRAIN]


def test_evaluating_on_the_training_loader_is_told_by_the_walk(recorded: Recorded) -> None:
    recorded.train((1, "train"))
    recorded.loop.exhausted(1)
    for _ in range(2):
        recorded.loop.fetch(2, "train")
        recorded.loop.forward("model", False, False)
    recorded.loop.close()
    assert recorded.phases() == [TRAIN, VALIDATION, VALIDATION]


def test_a_skipped_batch_of_a_training_walk_is_unknown(recorded: Recorded) -> None:
    recorded.train((1, "train"))
    recorded.loop.fetch(1, "train")
    recorded.loop.forward("model", True, True)
    recorded.train((1, "train"))
    assert recorded.phases() == [TRAIN, UNKNOWN, TRAIN]


def test_accumulation_is_one_step(recorded: Recorded) -> None:
    for _ in range(3):
        for _ in range(4):
            recorded.loop.fetch(1, "train")
            recorded.loop.forward("model", True, True)
            recorded.loop.backward()
        recorded.loop.optimizer_step("0")
    recorded.loop.close()
    assert recorded.loop.updates == 3
    assert recorded.loop.backwards == 12
    assert [p.step for p in recorded.passes] == [0] * 4 + [1] * 4 + [2] * 4


def test_two_optimizers_of_a_gan_share_steps(recorded: Recorded) -> None:
    recorded.loop.optimizer("1")
    for _ in range(4):
        recorded.train(optimizer="0", forwards=2)
        recorded.train(optimizer="1")
    recorded.loop.close()
    assert recorded.loop.updates in (4, 5)
    assert set(recorded.phases()) == {TRAIN}


def test_a_sample_for_the_critic_is_no_validation(recorded: Recorded) -> None:
    recorded.train()
    sample = recorded.loop.forward("generator", True, False)
    sample.feeds = True
    recorded.train()
    assert recorded.phases() == [TRAIN, UNKNOWN, TRAIN]


def test_validation_by_hand_between_steps(recorded: Recorded) -> None:
    recorded.train()
    recorded.loop.forward("model", False, False)
    recorded.train()
    assert recorded.phases() == [TRAIN, VALIDATION, TRAIN]
    assert recorded.validations == [1]


def test_a_look_without_gradients_in_train_mode_is_unknown_unless_it_has_a_loss(recorded: Recorded) -> None:
    recorded.train()
    recorded.loop.forward("model", True, False)
    recorded.train()
    recorded.loop.forward("model", True, False)
    recorded.loop.loss(False)
    recorded.train()
    assert recorded.phases() == [TRAIN, UNKNOWN, TRAIN, VALIDATION, TRAIN]


def test_a_look_at_the_model_before_training_is_unknown(recorded: Recorded) -> None:
    recorded.loop.forward("model", True, True)
    recorded.loop.fetch(1, "train")
    recorded.train((1, "train"))
    assert recorded.phases() == [UNKNOWN, TRAIN]


def test_a_loader_that_reads_ahead(recorded: Recorded) -> None:
    loop = recorded.loop
    loop.fetch(1, "train")
    for _ in range(3):
        loop.fetch(1, "train")
        recorded.train()
    loop.exhausted(1)
    recorded.train()
    loop.fetch(2, "val")
    loop.fetch(2, "val")
    loop.forward("model", False, False)
    loop.exhausted(2)
    loop.forward("model", False, False)
    loop.close()
    assert recorded.phases() == [TRAIN] * 4 + [VALIDATION] * 2
    assert [p.loader for p in recorded.passes[-2:]] == ["val", "val"]
    assert loop.validations == 1


def test_hooks_that_were_out_are_made_up_for(recorded: Recorded) -> None:
    for _ in range(3):
        recorded.loop.loss(True)
        recorded.loop.loss(True)
        recorded.loop.backward()
        recorded.loop.optimizer_step("0")
    assert recorded.phases() == [TRAIN] * 3


def test_an_output_that_no_backward_came_through_did_not_train(recorded: Recorded) -> None:
    recorded.train()
    probe = recorded.loop.forward("model", False, True)
    probe.reached = False
    recorded.train()
    assert recorded.phases() == [TRAIN, VALIDATION, TRAIN]


def test_order_of_calls_is_told_with_the_step(recorded: Recorded) -> None:
    loop = recorded.loop
    loop.call("zero_grad", "0")
    loop.forward("model", True, True)
    loop.backward()
    loop.call("clip")
    assert loop.optimizer_step("0") == ["zero_grad", "forward", "backward", "clip", "step"]
    loop.call("zero_grad", "1")
    assert loop.optimizer_step("0") == ["step"]


def test_the_loop_describes_itself(recorded: Recorded) -> None:
    for i in range(3):
        for _ in range(4):
            recorded.train((i, "train"))
        recorded.loop.fetch(100 + i, "val")
        recorded.loop.forward("model", False, False)
    recorded.loop.close()
    fact = recorded.loop.describe(["a.py:3"], [], [])
    assert (fact.updates, fact.validations, fact.updates_between_validations) == (12, 3, 4)
    assert (fact.passes_train, fact.passes_validation, fact.passes_unknown) == (12, 3, 0)


def test_a_very_long_interval_does_not_grow(recorded: Recorded) -> None:
    recorded.train()
    for _ in range(2000):
        recorded.loop.forward("model", False, False)
    assert len(recorded.loop._interval.passes) <= 512
    recorded.loop.close()
    assert recorded.phases().count(VALIDATION) == 2000


def test_updates_by_hand_are_steps_of_their_own() -> None:
    loop = Loop()
    for _ in range(10):
        loop.forward("model", True, True)
        loop.backward()
    assert loop.step == 9
    assert loop.describe([], [], []).updates == 0


def by_hand(loop: Loop, loader: tuple[int, str] | None = None, backwards: int = 1, seen: bool = True) -> None:
    """One batch of a loop in which no torch optimizer steps; `seen` where the forward pass was watched."""
    if loader:
        loop.fetch(*loader)
    opened = loop.forward("model", True, True) if seen else None
    loop.loss(True)
    for _ in range(backwards):
        loop.backward()
        if opened is not None:
            opened.reached = True


@pytest.mark.parametrize("seen", [True, False])
@pytest.mark.parametrize("loader", ["train", None])
@pytest.mark.parametrize(
    ("held", "training", "grad"), [("val", False, False), ("val", False, True), (None, False, False)]
)
def test_training_without_torch_optimizers_is_training_in_every_epoch(
    seen: bool, loader: str | None, held: str | None, training: bool, grad: bool
) -> None:
    passes: list[Pass] = []
    loop = Loop(passes.append)
    expected = []
    for epoch in range(3):
        for _ in range(4):
            by_hand(loop, (epoch, loader) if loader else None, seen=seen)
            expected.append(TRAIN)
        if loader:
            loop.exhausted(epoch)
        for _ in range(2):
            if held:
                loop.fetch(10 + epoch, held)
            evaluated = loop.forward("model", training, grad)
            evaluated.losses += 1
            evaluated.reached = False if grad else None
            expected.append(VALIDATION)
        if held:
            loop.exhausted(10 + epoch)
    loop.close()
    assert [p.phase for p in passes] == expected
    assert loop.step == 12 and loop.validations == 3
    assert [p.step for p in passes if p.phase == TRAIN] == list(range(12))
    assert loop.loader_phases == ({loader: TRAIN} if loader else {}) | ({held: VALIDATION} if held else {})


def test_losses_of_one_forward_pass_are_one_step_by_hand() -> None:
    passes: list[Pass] = []
    loop = Loop(passes.append)
    for _ in range(3):
        by_hand(loop, (1, "train"), backwards=2)
    loop.close()
    assert {p.phase for p in passes} == {TRAIN} and loop.step == 2


def test_passes_that_are_no_longer_watched_end_steps_by_hand() -> None:
    loop = Loop()
    for step in range(10):
        if step < 4:
            loop.forward("model", True, True)
        if step == 4:
            loop.passes_unwatched()
        loop.backward()
    assert loop.step == 9


def test_where_nothing_but_backward_is_seen_each_is_a_step_by_hand() -> None:
    loop = Loop()
    for _ in range(6):
        loop.backward()
    assert loop.step == 5


def test_a_gan_by_hand_never_validates() -> None:
    passes: list[Pass] = []
    loop = Loop(passes.append)
    for _ in range(3):
        loop.fetch(1, "train")
        made = loop.forward("generator", True, True)
        made.reached = False  # the critic gets it detached
        critic = loop.forward("critic", True, True)
        loop.loss(True)
        loop.backward()
        critic.reached = True
        again = loop.forward("critic", True, True)
        loop.loss(True)
        loop.backward()
        again.reached = True
    loop.close()
    assert loop.passes[VALIDATION] == 0 and loop.passes[TRAIN] == 6


def test_an_optimizer_that_comes_late_ends_the_steps_by_hand() -> None:
    loop = Loop()
    by_hand(loop)
    loop.optimizer("0")
    loop.optimizer_step("0")
    for _ in range(3):
        by_hand(loop, backwards=2)
        loop.optimizer_step("0")
    assert loop.updates == 4 and not loop.is_by_hand


def test_a_backward_pass_that_was_broken_off_trained(recorded: Recorded) -> None:
    opened = recorded.loop.forward("model", True, True)
    opened.reached = False
    recorded.loop.backward()
    recorded.loop.close()
    assert recorded.phases() == [TRAIN]


def test_long_accumulation_before_the_first_step_is_waited_for(recorded: Recorded) -> None:
    for _ in range(32):
        recorded.loop.forward("model", True, True)
        recorded.loop.backward()
    assert recorded.loop.step == 0


def test_gradients_cleared_unused_are_counted() -> None:
    loop = Loop()
    loop.optimizer("0")
    for _ in range(12):
        loop.call("zero_grad", "0")
        loop.call("zero_grad")
        loop.forward("model", True, True)
        loop.backward()
    told = loop.describe([], [], [])
    assert (told.updates, told.backwards, told.discarded) == (0, 12, 11)


def test_clearing_in_training_discards_nothing() -> None:
    loop = Loop()
    for _ in range(5):
        loop.call("zero_grad", "0")
        loop.forward("model", True, True)
        loop.backward()
        loop.optimizer_step("0")
    assert loop.describe([], [], []).discarded == 0


def test_the_order_of_a_step_that_was_told_in_part_is_not_known() -> None:
    loop = Loop()
    loop.optimizer("0")
    for _ in range(2):
        loop.backward()
        assert loop.optimizer_step("0")[-1] == "step"
    loop.settle()
    loop.count_backward()
    loop.call("clip")
    loop.resume()
    assert loop.optimizer_step("0") == []
    loop.backward()
    assert loop.optimizer_step("0") == ["forward", "backward", "step"]


def test_a_teacher_validates_only_where_nothing_is_trained_or_it_has_a_loss(recorded: Recorded) -> None:
    recorded.train()
    recorded.loop.forward("teacher", False, False).teaches = True
    recorded.train()
    recorded.loop.forward("teacher", False, False).teaches = True
    recorded.loop.loss(False)
    recorded.train()
    recorded.loop.fetch(1, "validation")
    recorded.loop.forward("teacher", False, False).teaches = True
    recorded.loop.exhausted(1)
    assert recorded.phases() == [TRAIN, UNKNOWN, TRAIN, VALIDATION, TRAIN, VALIDATION]


@pytest.mark.parametrize("validates", [False, True])
def test_steps_by_hand_are_counted_as_many_as_there_were(validates: bool) -> None:
    loop = Loop()
    for epoch in range(2):
        for _ in range(3):
            by_hand(loop, (epoch, "train"))
        if validates:
            loop.fetch(10 + epoch, "validation")
            loop.forward("model", False, False)
            loop.exhausted(10 + epoch)
    loop.close()
    described = loop.describe([], [], [])
    assert (described.steps, described.updates) == (6, 0)
