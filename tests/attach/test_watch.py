"""`torchdoctor.watch` in a program: the context manager, the plain object, findings, logs, stops."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchdoctor
from torchdoctor import signals
from torchdoctor.attach import session as sessions
from torchdoctor.errors import StopTraining, UnknownNameError, UsageError
from torchdoctor.facts import FixedSamplesFact, ModelFact, PhaseFact


def train(steps: int, *, zero: bool = True, rate: float = 0.05, pause: threading.Event | None = None) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 3))
    optimizer = torch.optim.SGD(model.parameters(), rate)
    for step in range(steps):
        x = torch.randn(16, 10)
        loss = F.cross_entropy(model(x), x[:, :3].argmax(1))
        if zero:
            optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if pause is not None and step > 30:
            pause.wait(0.05)
    return model


def test_context_manager_gives_a_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with torchdoctor.watch(out=tmp_path, name="first") as doctor:
        train(60, zero=False)
    verdict = doctor.verdict()
    assert verdict.findings[0].name == "missing-zero-grad"
    assert doctor.directory == tmp_path / "first"
    assert "missing-zero-grad" in capsys.readouterr().err


def test_plain_object_and_findings_on_the_way(tmp_path: Path) -> None:
    doctor = torchdoctor.watch(out=tmp_path, quiet=True)
    assert doctor.findings() == ()
    train(40)
    assert all(f.severity.value == "info" for f in doctor.findings())
    assert doctor.close() is not None
    assert doctor.close() is not None
    assert sessions.current() is None


def test_names_are_the_users_own(tmp_path: Path) -> None:
    model = nn.Sequential()
    model.add_module("stem", nn.Linear(4, 4))
    model.add_module("head", nn.Linear(4, 1))
    optimizer = torch.optim.Adam(model.parameters())
    with torchdoctor.watch(model, optimizer, out=tmp_path, quiet=True) as doctor:
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.randn(2, 4)).sum().backward()
            optimizer.step()
    run = doctor.run()
    assert run is not None
    assert set(run.parameters) == {"stem.weight", "stem.bias", "head.weight", "head.bias"}
    assert [f.type for f in run.facts(ModelFact)] == ["Sequential"]


def test_globs_choose_modules(tmp_path: Path) -> None:
    with torchdoctor.watch(out=tmp_path, modules=["2"], quiet=True) as doctor:
        train(5)
    run = doctor.run()
    assert run is not None
    assert set(run.matrix(signals.GRADIENT_L2).columns) == {"2.weight", "2.bias"}


def test_log_keeps_what_hooks_cannot_see(tmp_path: Path) -> None:
    with torchdoctor.watch(out=tmp_path, quiet=True) as doctor:
        for value in (0.9, 0.7, 0.6):
            train(3)
            doctor.log(val_loss=value, f1=1 - value)
        with pytest.raises(UsageError, match="takes a number"):
            doctor.log(note="better")  # type: ignore[arg-type]
    run = doctor.run()
    assert run is not None
    assert run.keys(signals.USER) == ["f1", "val_loss"]
    assert run.scalar(signals.LOSS_VALIDATION).values == pytest.approx([0.9, 0.7, 0.6])


def test_summary_has_the_short_figures(tmp_path: Path) -> None:
    with torchdoctor.watch(out=tmp_path, quiet=True) as doctor:
        train(50)
        early = doctor.summary()
    assert early
    assert {"steps", "final_loss", "best_loss"} <= set(doctor.summary())


def test_findings_come_while_it_trains(tmp_path: Path) -> None:
    told = threading.Event()
    names: list[str] = []

    def listen(finding: torchdoctor.Finding) -> None:
        names.append(finding.name)
        told.set()

    with torchdoctor.watch(out=tmp_path, quiet=True, on_finding=listen):
        train(200, zero=False, pause=told)
    assert "missing-zero-grad" in names


def test_a_run_beyond_help_is_stopped(tmp_path: Path) -> None:
    reached = []
    with torchdoctor.watch(out=tmp_path, quiet=True, stop_on=["missing-zero-grad"]) as doctor:
        train(2000, zero=False, pause=threading.Event())
        reached.append("end")
    assert reached == []
    assert doctor.verdict().findings[0].name == "missing-zero-grad"


def test_stopping_raises_where_there_is_no_block(tmp_path: Path) -> None:
    doctor = torchdoctor.watch(out=tmp_path, quiet=True, stop_on=["missing-zero-grad"])
    with pytest.raises(StopTraining, match="missing-zero-grad"):
        train(2000, zero=False, pause=threading.Event())
    doctor.close()


def test_exceptions_of_the_block_go_on(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), torchdoctor.watch(out=tmp_path, quiet=True):
        train(3)
        raise ZeroDivisionError
    assert sessions.current() is None


def test_wrong_calls_say_what_is_right(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="models and optimizers"):
        torchdoctor.watch("model", out=tmp_path)  # type: ignore[arg-type]
    with pytest.raises(UnknownNameError, match="torchdoctor explain"):
        torchdoctor.watch(out=tmp_path, stop_on=["no-such-thing"])
    with pytest.raises(UsageError, match="share"):
        torchdoctor.watch(out=tmp_path, overhead=3.0)


def test_switched_off_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHDOCTOR_DISABLE", "1")
    with torchdoctor.watch(out=tmp_path) as doctor:
        train(3)
        doctor.log(val_loss=1.0)
    assert doctor.findings() == ()
    assert doctor.summary() == {}
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_where_nothing_is_trained(tmp_path: Path) -> None:
    with torchdoctor.watch(out=tmp_path, quiet=True) as doctor:
        nn.Linear(3, 3)(torch.zeros(1, 3))
    assert list(tmp_path.iterdir()) == []
    assert doctor.directory is None


def test_a_folder_that_cannot_be_written_does_not_stop_training(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with torchdoctor.watch(out=blocked, quiet=True) as doctor:
        train(5)
    assert doctor.findings() == ()


def test_watching_inside_a_watched_run_joins_it(tmp_path: Path) -> None:
    with torchdoctor.watch(out=tmp_path, quiet=True) as outer:
        with torchdoctor.watch(out=tmp_path, quiet=True) as inner:
            train(5)
        assert sessions.current() is not None
    assert inner.directory == outer.directory
    assert len(list(tmp_path.iterdir())) == 1


def test_displays_itself_in_a_notebook(tmp_path: Path) -> None:
    with torchdoctor.watch(out=tmp_path, quiet=True) as doctor:
        train(60, zero=False)
    assert "not cleared" in doctor._repr_html_()


def test_fixed_samples_are_followed_through_validations(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    x = torch.randn(40, 6)
    data = torch.utils.data.TensorDataset(x, x[:, :3].argmax(1))
    train_loader = torch.utils.data.DataLoader(data, 10, shuffle=True)
    validation_loader = torch.utils.data.DataLoader(data, 10)
    expected = []
    with torchdoctor.watch(out=tmp_path, quiet=True) as doctor:
        for _ in range(3):
            for a, b in train_loader:
                optimizer.zero_grad()
                F.cross_entropy(model(a), b).backward()
                optimizer.step()
            with torch.no_grad():
                for i, (a, b) in enumerate(validation_loader):
                    output = model(a)
                    F.cross_entropy(output, b)
                    if i == 0:
                        expected.append(output[:4].clone())
    run = doctor.run()
    assert run is not None
    facts = run.facts(FixedSamplesFact)
    assert [torch.equal(torch.tensor(f.outputs), e) for f, e in zip(facts, expected, strict=True)] == [True] * 3
    assert len({tuple(f.fingerprints) for f in facts}) == 1


def by_hand(steps: int) -> None:
    torch.manual_seed(0)
    model = nn.Linear(6, 3)
    for _ in range(steps):
        x = torch.randn(16, 6)
        model.zero_grad()
        F.cross_entropy(model(x), x[:, :3].argmax(1)).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.5 * parameter.grad


def test_updates_by_hand_are_followed(tmp_path: Path) -> None:
    with torchdoctor.watch(out=tmp_path, quiet=True) as doctor:
        by_hand(40)
    run = doctor.run()
    assert run is not None
    assert len(run.scalar(signals.LOSS_TRAIN)) == 40
    assert not torch.is_anomaly_enabled()
    assert all(f.severity.value == "info" for f in doctor.findings())


def test_an_optimizer_used_for_its_groups_alone_is_no_fault(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    with torchdoctor.watch(out=tmp_path, quiet=True) as doctor:
        for _ in range(40):
            x = torch.randn(16, 6)
            optimizer.zero_grad()
            F.cross_entropy(model(x), x[:, :3].argmax(1)).backward()
            with torch.no_grad():
                for parameter in optimizer.param_groups[0]["params"]:
                    parameter -= 0.5 * parameter.grad
    assert [f.name for f in doctor.findings() if f.severity.value != "info"] == []


def test_an_optimizer_for_every_task_leaves_nothing_behind(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Linear(6, 3)
    with torchdoctor.watch(out=tmp_path, quiet=True) as doctor:
        for _ in range(50):
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            for _ in range(2):
                x = torch.randn(8, 6)
                optimizer.zero_grad()
                F.cross_entropy(model(x), x[:, :3].argmax(1)).backward()
                optimizer.step()
            del optimizer
        session = sessions.current()
        assert session is not None
        assert len(session.registry.optimizers) <= 2
    run = doctor.run()
    assert run is not None
    assert run.steps >= 99


def test_a_model_that_raised_is_not_still_running(tmp_path: Path) -> None:
    class Breaks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.layer(x)
            raise KeyError("stop early")

    teacher, student = Breaks(), nn.Sequential(nn.Linear(6, 3))
    optimizer = torch.optim.SGD(student.parameters(), 0.1)
    with torchdoctor.watch(out=tmp_path, quiet=True) as doctor:
        for _ in range(10):
            x = torch.randn(8, 6)
            with pytest.raises(KeyError):
                teacher(x)
            optimizer.zero_grad()
            F.cross_entropy(student(x), x[:, :3].argmax(1)).backward()
            optimizer.step()
    run = doctor.run()
    assert run is not None
    assert any(name.endswith("0.weight") for name in run.parameters)


def test_a_teacher_that_sees_the_training_batch_is_no_validation(tmp_path: Path) -> None:
    torch.manual_seed(0)
    teacher, student = nn.Linear(10, 3).eval(), nn.Linear(10, 3)
    optimizer = torch.optim.SGD(student.parameters(), 0.1)
    with torchdoctor.watch(student, optimizer, out=tmp_path, quiet=True) as doctor:
        for _ in range(20):
            x = torch.randn(16, 10)
            with torch.no_grad():
                wanted = teacher(x)
            loss = F.mse_loss(student(x), wanted / 2)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    run = doctor.run()
    assert run is not None
    phase = run.last_fact(PhaseFact)
    assert phase is not None
    assert phase.validations == 0


def test_models_that_learn_side_by_side_are_no_teachers_of_each_other(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x, held_out = torch.randn(40, 8), torch.randn(30, 8)
    models = [nn.Linear(8, 2) for _ in range(2)]
    optimizers = [torch.optim.SGD(model.parameters(), 0.1) for model in models]
    with torchdoctor.watch(out=tmp_path, quiet=True) as doctor:
        for _ in range(10):
            for model, optimizer in zip(models, optimizers, strict=True):
                model.train()
                optimizer.zero_grad()
                F.cross_entropy(model(x), x[:, :2].argmax(1)).backward()
                optimizer.step()
                model.eval()
                with torch.no_grad():
                    for data in (x, held_out):
                        (model(data).argmax(1) == data[:, :2].argmax(1)).float().mean().item()
    run = doctor.run()
    assert run is not None
    phase = run.last_fact(PhaseFact)
    assert phase is not None
    assert phase.passes_validation > 30
