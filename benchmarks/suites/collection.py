"""Test suites of other projects that train with PyTorch, each pinned to one release on the package index."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Suite:
    """One project's own tests, run from its source distribution."""

    name: str
    """of the distribution on the package index"""
    version: str
    tests: tuple[str, ...]
    """paths below the unpacked distribution"""
    options: tuple[str, ...] = ()
    """further words for pytest"""
    requires: tuple[str, ...] = ()
    """packages beside torch, torchdoctor and pytest"""
    sample: tuple[str, ...] = ()
    """tests of `--sample`: a minute or two instead of all"""
    variables: tuple[tuple[str, str], ...] = ()
    """of the environment"""

    @property
    def requirement(self) -> str:
        return f"{self.name}=={self.version}"


SUITES = (
    Suite(
        name="skorch",
        version="1.4.0",
        tests=tuple(
            f"skorch/tests/{path}"
            for path in ("test_net.py", "test_classifier.py", "test_dataset.py", "test_helper.py", "callbacks")
        ),
        options=("-p", "no:cov", "-o", "addopts="),
        requires=("scikit-learn==1.7.2", "scipy", "pandas", "flaky", "pytest-cov", "tabulate", "tqdm"),
        sample=("skorch/tests/test_classifier.py",),
    ),
    Suite(
        name="pytorch-ignite",
        version="0.5.5",
        tests=(
            "tests/ignite/engine",
            *(f"tests/ignite/handlers/test_{name}.py" for name in ("checkpoint", "ema_handler", "early_stopping")),
            *(f"tests/ignite/handlers/test_{name}.py" for name in ("lr_finder", "terminate_on_nan")),
        ),
        options=("-k", "not distrib and not multinode and not tpu"),
        requires=("scikit-learn==1.7.2", "pytest-xdist", "matplotlib", "mock", "flaky"),
        sample=("tests/ignite/engine/test_create_supervised.py",),
    ),
    Suite(
        name="accelerate",
        version="1.15.0",
        tests=tuple(
            f"tests/test_{name}.py"
            for name in ("hooks", "data_loader", "offload", "modeling_utils", "logging", "optimizer", "scheduler")
        ),
        requires=("parameterized", "datasets", "transformers", "evaluate", "scikit-learn==1.7.2"),
        sample=("tests/test_hooks.py",),
    ),
    Suite(
        name="pytorch_optimizer",
        version="4.1.0",
        tests=tuple(f"tests/test_{name}.py" for name in ("optimizers", "gradients", "lr_schedulers", "loss_functions")),
        requires=("pytest-cov",),
        sample=("tests/test_gradients.py", "tests/test_loss_functions.py"),
    ),
    Suite(
        name="einops",
        version="0.8.2",
        tests=("einops/tests/test_layers.py", "einops/tests/test_ops.py"),
        requires=("numpy",),
        sample=("einops/tests/test_layers.py",),
        variables=(("EINOPS_TEST_BACKENDS", "numpy,torch"),),
    ),
)
