"""How fast the statistics of a GPT-2's gradients are on a GPU, against the memory's own speed.

    python benchmarks/stats_gpu.py [--sweep] [--dtype float32]

First checks the numbers against float64, then prints microseconds and GB/s for each way of looking at 148 tensors of
124M elements, for a copy of the same bytes (the machine's own limit), and the host's time to queue the work. `--sweep`
tries block sizes, warps and pipeline stages, to choose the constants in torchdoctor/stats/triton.py by.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from torchdoctor import stats
from torchdoctor.stats import triton

LAYERS, WIDTH, VOCABULARY, CONTEXT = 12, 768, 50_257, 1_024


def gpt2_shapes() -> list[tuple[int, ...]]:
    block = [(WIDTH,), (WIDTH,), (3 * WIDTH, WIDTH), (3 * WIDTH,), (WIDTH, WIDTH), (WIDTH,), (WIDTH,), (WIDTH,)]
    block += [(4 * WIDTH, WIDTH), (4 * WIDTH,), (WIDTH, 4 * WIDTH), (WIDTH,)]
    return [(VOCABULARY, WIDTH), (CONTEXT, WIDTH), *block * LAYERS, (WIDTH,), (WIDTH,)]


def device_time(work: Callable[[], object], repeats: int = 30) -> float:
    """Median seconds on the device."""
    for _ in range(5):
        work()
    spans = []
    for _ in range(repeats):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(2_000_000)
        start.record()
        work()
        stop.record()
        stop.synchronize()
        spans.append(start.elapsed_time(stop) / 1e3)
    return statistics.median(spans)


def host_time(work: Callable[[], object], repeats: int = 50) -> float:
    """Median seconds of the host until the work is queued."""
    spans = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        spans.append(time.perf_counter() - start)
    return statistics.median(spans)


def check(tensors: list[Tensor]) -> None:
    """Raise unless the statistics agree with float64."""
    rows = stats.summarize(tensors).double()
    assert triton.failure is None, f"Triton was given up: {triton.failure}"
    for row, tensor in zip(rows, tensors, strict=True):
        x = tensor.double()
        truth = [x.norm(), x.mean(), x.std(unbiased=False), x.abs().max(), x.abs().mean(), (x == 0).double().mean()]
        for got, want in zip(row.tolist(), truth, strict=False):
            assert abs(got - want.item()) <= 1e-4 * abs(want.item()) + 1e-5 * row[4].item(), (row.tolist(), truth)
        assert row[7] == 0
    print(f"numbers agree with float64 for {len(tensors)} tensors")


def report(name: str, work: Callable[[], object], octets: int) -> None:
    device, host = device_time(work), host_time(work)
    speed = octets / device / 1e9
    print(f"{name:<36} {device * 1e6:9.1f} us on the device {speed:8.0f} GB/s {host * 1e6:9.1f} us to queue")


def sweep(tensors: list[Tensor], octets: int) -> None:
    usual = triton.CHUNK, triton.BLOCK, triton.WARPS, triton.STAGES
    found = []
    for chunk, block, warps, stages in itertools.product(
        (16_384, 32_768, 65_536), (1_024, 2_048, 4_096), (4, 8, 16), (1, 2, 3, 4)
    ):
        if not 4 <= block // (32 * warps) <= 16:
            continue
        triton.CHUNK, triton.BLOCK, triton.WARPS, triton.STAGES = chunk, block, warps, stages
        found.append((device_time(lambda: stats.summarize(tensors), 15), chunk, block, warps, stages))
    triton.CHUNK, triton.BLOCK, triton.WARPS, triton.STAGES = usual
    print("sweep, best first (usual: CHUNK {} BLOCK {} WARPS {} STAGES {}):".format(*usual))
    for seconds, *choice in sorted(found)[:12]:
        print(
            "  {:8.1f} us {:6.0f} GB/s  CHUNK {:6} BLOCK {:5} WARPS {:2} STAGES {}".format(
                seconds * 1e6, octets / seconds / 1e9, *choice
            )
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16", "float16"))
    parser.add_argument("--sweep", action="store_true")
    options = parser.parse_args()
    dtype = getattr(torch, options.dtype)
    torch.manual_seed(0)
    gradients = [(torch.randn(shape, device="cuda") * 1e-3).to(dtype) for shape in gpt2_shapes()]
    weights = [(torch.randn(shape, device="cuda") * 0.02).to(dtype) for shape in gpt2_shapes()]
    octets = sum(t.numel() * t.element_size() for t in gradients)
    elements = sum(t.numel() for t in gradients)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    print(f"{len(gradients)} tensors of {elements:,} elements in {options.dtype}")
    check(gradients)
    flat, other = (
        torch.empty(octets, dtype=torch.uint8, device="cuda"),
        torch.empty(octets, dtype=torch.uint8, device="cuda"),
    )
    report("a copy (reads and writes)", lambda: other.copy_(flat), 2 * octets)
    report("summarize gradients", lambda: stats.summarize(gradients), octets)
    report("summarize gradients and weights", lambda: stats.summarize(gradients + weights), 2 * octets)
    report("norms (torch._foreach_norm)", lambda: stats.norms(gradients), octets)
    report("change_norms", lambda: stats.change_norms(weights, gradients), 2 * octets)
    report("histograms", lambda: stats.histograms(gradients), octets)
    activation = torch.randn(16, 1024, WIDTH, device="cuda").to(dtype)
    report("activation of 16 x 1024 x 768", lambda: stats.activation(activation, None), activation.nbytes)
    report("fingerprints of 16 samples of 3 MB", lambda: stats.fingerprints(activation), activation.nbytes)
    if options.sweep:
        sweep(gradients, octets)


if __name__ == "__main__":
    main()
