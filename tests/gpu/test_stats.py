"""Statistics on a CUDA device: right, without waiting, without memory of their own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from stats.oddities import arrange, build, close, sparse
from torchdoctor import stats
from torchdoctor.stats import reference, triton

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

HALVES = (torch.bfloat16, torch.float16)
FLOATS = (torch.float32, *HALVES, torch.float64)


@pytest.fixture(autouse=True)
def working() -> Iterator[None]:
    """Triton must not have been given up on, before or after."""
    assert triton.failure is None
    yield
    assert triton.failure is None


@contextmanager
def never_waiting() -> Iterator[None]:
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def assorted(dtype: torch.dtype) -> list[Tensor]:
    shapes = ((), (0,), (1,), (7,), (3, 5), (33,), (1024,), (triton.CHUNK,), (triton.CHUNK + 1,), (300, 500))
    made = [build(shape, dtype, i, 0.5, 0.0, 0.1 * (i % 2)) for i, shape in enumerate(shapes)]
    made += [build((5000,), dtype, 20, scale, centre, 0.0) for scale in (1e-25, 1e-4, 1e25) for centre in (0.0, 100.0)]
    made += [torch.full((9,), math.nan, dtype=dtype), torch.zeros(40, dtype=dtype)]
    plain = build((2, 3, 40, 50), dtype, 30, 1.0, 0.0, 0.05)
    made += [arrange(plain, layout) for layout in ("transposed", "every other", "offset", "expanded", "channels last")]
    return [t.cuda() for t in made]


@pytest.mark.parametrize("dtype", FLOATS)
def test_summaries_are_right(dtype: torch.dtype) -> None:
    tensors = assorted(dtype)
    rows = stats.summarize(tensors)
    assert rows.is_cuda and rows.dtype == torch.float32
    for row, tensor in zip(rows, tensors, strict=True):
        close(row, tensor)


def test_three_hundred_tensors_of_mixed_dtypes() -> None:
    tensors = [build((1 + 97 * i,), FLOATS[i % 4], i, 0.02, 0.0, 0.01).cuda() for i in range(300)]
    for row, tensor in zip(stats.summarize(tensors), tensors, strict=True):
        close(row, tensor)


@pytest.mark.parametrize("dtype", (torch.float32, *HALVES))
def test_fifty_million_elements(dtype: torch.dtype) -> None:
    generator = torch.Generator("cuda").manual_seed(0)
    tensor = (torch.randn(50_000_000, device="cuda", generator=generator) * 0.02 + 0.01).to(dtype)
    tensor[12_345_678], tensor[5] = math.nan, 0.0
    l2, mean, std, absmax, absmean, zeros, tiny, nonfinite = stats.summarize([tensor])[0].tolist()
    wide = tensor.double()
    finite = wide[wide.isfinite()]
    assert nonfinite == 1
    assert l2 == pytest.approx(finite.norm().item(), rel=1e-5)
    assert mean == pytest.approx(finite.mean().item(), rel=1e-4)
    assert std == pytest.approx(finite.std(unbiased=False).item(), rel=1e-4)
    assert absmax == pytest.approx(finite.abs().max().item(), rel=1e-6)
    assert absmean == pytest.approx(finite.abs().mean().item(), rel=1e-5)
    assert zeros == pytest.approx((wide == 0).double().mean().item(), rel=1e-5)
    assert tiny == pytest.approx(((wide != 0) & (wide.abs() < 1e-8)).double().mean().item(), abs=1e-9)


def test_integers_sparse_and_odd_ones_beside_floats() -> None:
    good = build((50,), torch.float32, 0, 1.0, 0.0, 0.0).cuda()
    others = [
        build((50,), d, 1, 30.0, 0.0, 0.0).cuda() for d in (torch.int64, torch.uint8, torch.bool, torch.complex64)
    ]
    held = [t.coalesce().cuda() if t.layout == torch.sparse_coo else t.cuda() for t in sparse(2)[1:4]]
    uncoalesced = sparse(2)[0].cuda()
    assert stats.unsupported(uncoalesced)
    rows = stats.summarize([good, *others, uncoalesced, *held, torch.ones(3)])
    assert rows.is_cuda and rows[5].isnan().all()
    for row, tensor in zip(rows[[0, 1, 2, 3, 4, 6, 7, 8, 9]], [good, *others, *held, torch.ones(3)], strict=True):
        close(row, tensor)


@pytest.mark.parametrize("dtype", (torch.float32, *HALVES))
def test_norms_changes_and_histograms(dtype: torch.dtype) -> None:
    before = [build((n,), dtype, n, 0.1, 1.0, 0.0).cuda() for n in (1, 100, 70_000)]
    after = [(t + build((t.numel(),), dtype, 5, 0.01, 0.0, 0.0).cuda()).to(dtype) for t in before]
    norms, changes, counts = stats.norms(before), stats.change_norms(before, after), stats.histograms(before)
    assert norms.tolist() == pytest.approx([reference.norm(t) for t in before], rel=1e-4)
    assert changes.tolist() == pytest.approx(
        [reference.change_norm(a, b) for a, b in zip(before, after, strict=True)], rel=1e-4
    )
    assert counts.tolist() == [reference.histogram(t) for t in before]
    assert stats.norms([torch.tensor([1.0, math.nan]).cuda()]).isnan().all()
    bad = torch.tensor([1.0, math.inf]).cuda()
    assert not stats.change_norms([bad, bad[:1]], [bad, bad[:1]])[0].isfinite()


def test_changes_between_layouts() -> None:
    before = build((4, 3, 20, 20), torch.float32, 0, 1.0, 0.0, 0.0).cuda()
    after = (before + 0.5).contiguous(memory_format=torch.channels_last)
    assert stats.change_norms([before], [after]).item() == pytest.approx(0.5 * math.sqrt(before.numel()), rel=1e-5)


@pytest.mark.parametrize("dtype", FLOATS)
def test_histograms_count_what_the_reference_counts(dtype: torch.dtype) -> None:
    tensors = assorted(dtype)
    for row, tensor in zip(stats.histograms(tensors), tensors, strict=True):
        assert row.tolist() == reference.histogram(tensor)


MEASURES: dict[str, Callable[[Tensor], Tensor]] = {
    "activation": lambda t: stats.activation(t, None),
    "sigmoid": lambda t: stats.activation(t.sigmoid(), "sigmoid"),
    "softmax": lambda t: stats.activation(t.mul(9).softmax(-1), "softmax"),
    "alive_units": lambda t: stats.alive_units(t.relu(), 1),
    "batch": stats.batch,
    "batch of integers": lambda t: stats.batch((t.nan_to_num(0.0, 0.0, 0.0) * 50).int()),
    "features": lambda t: stats.features(t, 1),
    "fingerprints": stats.fingerprints,
    "unit_spread": stats.unit_spread,
}


@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.parametrize("odd", [0.0, 0.1])
def test_the_rest_agrees_with_the_cpu(name: str, odd: float) -> None:
    tensor = build((16, 12, 20), torch.float32, 7, 1.0, 0.2, odd)
    tensor[:, 3] = 0.0
    there = MEASURES[name](tensor.cuda())
    torch.testing.assert_close(there.cpu(), MEASURES[name](tensor), rtol=1e-4, atol=1e-5, equal_nan=True)


def test_nothing_waits_for_the_device() -> None:
    tensor = build((16, 12, 20), torch.float32, 7, 1.0, 0.2, 0.1).cuda()
    mixed = [t for d in FLOATS for t in assorted(d)]
    measures: list[Callable[[], Tensor]] = [
        lambda: stats.summarize(mixed),
        lambda: stats.summarize([torch.ones(n, device="cuda") for n in (5, 600, 70_000)]),
        lambda: stats.norms(mixed),
        lambda: stats.change_norms(mixed, mixed),
        lambda: stats.histograms(mixed),
        *((lambda m=m: m(tensor)) for m in MEASURES.values()),
    ]
    for measure in measures:
        measure()
    with never_waiting():
        for measure in measures:
            measure()


def test_twice_the_same_bits() -> None:
    tensors = [build((n,), torch.float32, n, 1.0, 0.0, 0.01).cuda() for n in (10, 1000, 400_000)]
    assert torch.equal(stats.summarize(tensors).view(torch.int32), stats.summarize(tensors).view(torch.int32))


def test_no_memory_of_the_users_size() -> None:
    tensors = [torch.ones(20_000_000, device="cuda") for _ in range(3)]
    stats.summarize(tensors), stats.change_norms(tensors, tensors)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_allocated()
    for _ in range(5):
        stats.summarize(tensors), stats.change_norms(tensors, tensors), stats.histograms(tensors)
    assert torch.cuda.max_memory_allocated() - held < 4_000_000
    assert torch.cuda.memory_allocated() - held < 1_000_000


def test_another_stream() -> None:
    tensor = build((100_000,), torch.float32, 1, 1.0, 0.0, 0.0).cuda()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        row = stats.summarize([tensor])[0]
    stream.synchronize()
    close(row, tensor)


def test_nothing_enters_a_captured_graph() -> None:
    tensor = torch.ones(1000, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        doubled = tensor * 2
        rows, row = stats.summarize([doubled]), stats.activation(doubled, None)
    assert rows.isnan().all() and row.isnan().all() and not rows.is_cuda
    graph.replay()
    assert doubled.sum().item() == 2000


def test_without_triton_plain_operations_do_it(monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = [t for d in (torch.float32, torch.bfloat16) for t in assorted(d)]
    with monkeypatch.context() as patch:
        patch.setattr(triton, "failure", "as if")
        rows, counts = stats.summarize(tensors), stats.histograms(tensors)
    for row, count, tensor in zip(rows, counts, tensors, strict=True):
        close(row, tensor)
        assert count.tolist() == reference.histogram(tensor)


def test_a_compiled_graph_on_the_device() -> None:
    def step(x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.relu(x @ x.t())
        return y.sum(), stats.summarize([x, y])

    x = build((64, 64), torch.float32, 0, 1.0, 0.0, 0.0).cuda()
    plain, compiled = step(x), torch.compile(step, fullgraph=True)(x)
    torch.testing.assert_close(compiled[1], plain[1], rtol=1e-3, atol=1e-3)


def test_operators_in_a_captured_graph_are_nan_and_break_nothing() -> None:
    tensor = torch.ones(1000, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        doubled = tensor * 2
        rows = torch.ops.torchdoctor.summarize([doubled])
        row = torch.ops.torchdoctor.activation(doubled, None, -1)
    graph.replay()
    assert doubled.sum().item() == 2000
    assert rows.is_cuda and rows.isnan().all() and row.is_cuda and row.isnan().all()
