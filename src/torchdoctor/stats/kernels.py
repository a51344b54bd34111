"""The Triton kernels: one launch reads every tensor of a list once, a second tiny one merges what it found.

A program reads one chunk of one tensor; a table says which. Sums are taken of x - shift, where shift is the mean of
the chunk's first elements, so that a small spread around a large mean keeps its digits; the merge is in float64.
Chunks whose squares would vanish or overflow in float32 are read once more in float64.
"""

from __future__ import annotations

import triton
import triton.language as tl

FIELDS = tl.constexpr(8)
"""Of a chunk: shift, sum, squares and absolute sum of the finite elements, largest, zeros, tiny, non-finite."""
HEAD = tl.constexpr(32)
"""Elements that give the shift: what one warp sums without meeting the others."""
TINY_COUNT = tl.constexpr(1024)
WIDE = tl.constexpr(256)
"""Elements read at once in float64: few, since registers taken here would slow the usual way down."""
NONFINITE_COUNT = tl.constexpr(1024 * 1024)
"""Three counts share an int32 in every lane; a lane sees fewer than 1024 elements of a chunk."""


@triton.jit
def _fetch(base, other, offsets, inside, CHANGE: tl.constexpr, MASKED: tl.constexpr):
    """Elements, or their change against the other tensor, as float32."""
    if MASKED:
        x = tl.load(base + offsets, mask=inside, other=0).to(tl.float32)
        if CHANGE:
            x -= tl.load(other + offsets, mask=inside, other=0).to(tl.float32)
    else:
        x = tl.load(base + offsets).to(tl.float32)
        if CHANGE:
            x -= tl.load(other + offsets).to(tl.float32)
    return x


@triton.jit
def _accumulate(x, inside, shift, total, squares, absolute, high, counts, TINY: tl.constexpr, MASKED: tl.constexpr):
    magnitude = tl.abs(x)
    finite = magnitude < float("inf")
    kind = tl.where(finite, tl.where(magnitude < TINY, TINY_COUNT, 0), NONFINITE_COUNT)
    kind = tl.where(x == 0, 1, kind)
    if MASKED:
        kind = tl.where(inside, kind, 0)
        finite = finite & inside
    deviation = tl.where(finite, x - shift, 0.0)
    magnitude = tl.where(finite, magnitude, 0.0)
    total += deviation
    squares += deviation * deviation
    absolute += magnitude
    high = tl.maximum(high, magnitude)
    counts += kind
    return total, squares, absolute, high, counts


@triton.jit
def _accumulate_wide(x, inside, shift, total, squares, absolute):
    finite = (tl.abs(x) < float("inf")) & inside
    wide = x.to(tl.float64)
    deviation = tl.where(finite, wide - shift, 0.0)
    total += deviation
    squares += deviation * deviation
    absolute += tl.where(finite, tl.abs(wide), 0.0)
    return total, squares, absolute


@triton.jit
def reduce_chunks(
    addresses,
    others,
    sizes,
    owners,
    ordinals,
    partials,
    DTYPE: tl.constexpr,
    OTHER: tl.constexpr,
    CHANGE: tl.constexpr,
    ALIGNED: tl.constexpr,
    TINY: tl.constexpr,
    LOW: tl.constexpr,
    HIGH: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    program = tl.program_id(0)
    owner = tl.load(owners + program)
    start = tl.load(ordinals + program).to(tl.int64) * CHUNK
    remaining = tl.minimum(tl.load(sizes + owner) - start, CHUNK).to(tl.int32)
    base = tl.load(addresses + owner).to(tl.pointer_type(DTYPE))
    other = tl.load(others + owner).to(tl.pointer_type(OTHER))
    if ALIGNED:
        base = tl.multiple_of(base, 16)
        other = tl.multiple_of(other, 16)
    base += start
    other += start

    head = tl.arange(0, HEAD)
    near = _fetch(base, other, head, head < remaining, CHANGE, True).to(tl.float64)
    known = (tl.abs(near) < float("inf")) & (head < remaining)
    known_count = tl.maximum(tl.sum(known.to(tl.int32), 0), 1)
    shift = (tl.sum(tl.where(known, near, 0.0), 0) / known_count.to(tl.float64)).to(tl.float32)

    lanes = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    squares = tl.zeros([BLOCK], tl.float32)
    absolute = tl.zeros([BLOCK], tl.float32)
    high = tl.zeros([BLOCK], tl.float32)
    counts = tl.zeros([BLOCK], tl.int32)
    full = remaining // BLOCK * BLOCK
    for offset in tl.range(0, full, BLOCK, num_stages=STAGES):
        x = _fetch(base, other, offset + lanes, lanes, CHANGE, False)
        total, squares, absolute, high, counts = _accumulate(
            x, lanes, shift, total, squares, absolute, high, counts, TINY, False
        )
    if full < remaining:
        inside = full + lanes < remaining
        x = _fetch(base, other, full + lanes, inside, CHANGE, True)
        total, squares, absolute, high, counts = _accumulate(
            x, inside, shift, total, squares, absolute, high, counts, TINY, True
        )

    highest = tl.max(high, 0)
    all_total = tl.sum(total, 0).to(tl.float64)
    all_squares = tl.sum(squares, 0).to(tl.float64)
    all_absolute = tl.sum(absolute, 0).to(tl.float64)
    if (highest > HIGH) | ((highest < LOW) & (highest > 0)):
        few = tl.arange(0, WIDE)
        wide_total = tl.zeros([WIDE], tl.float64)
        wide_squares = tl.zeros([WIDE], tl.float64)
        wide_absolute = tl.zeros([WIDE], tl.float64)
        for offset in range(0, remaining, WIDE):
            inside = offset + few < remaining
            x = _fetch(base, other, offset + few, inside, CHANGE, True)
            wide_total, wide_squares, wide_absolute = _accumulate_wide(
                x, inside, shift, wide_total, wide_squares, wide_absolute
            )
        all_total = tl.sum(wide_total, 0)
        all_squares = tl.sum(wide_squares, 0)
        all_absolute = tl.sum(wide_absolute, 0)

    row = partials + program.to(tl.int64) * FIELDS
    tl.store(row, shift.to(tl.float64))
    tl.store(row + 1, all_total)
    tl.store(row + 2, all_squares)
    tl.store(row + 3, all_absolute)
    tl.store(row + 4, highest.to(tl.float64))
    tl.store(row + 5, tl.sum(counts & 1023, 0).to(tl.float64))
    tl.store(row + 6, tl.sum((counts >> 10) & 1023, 0).to(tl.float64))
    tl.store(row + 7, tl.sum(counts >> 20, 0).to(tl.float64))


@triton.jit
def merge_chunks(partials, firsts, sizes, rows, CHUNK: tl.constexpr, SPAN: tl.constexpr):
    owner = tl.program_id(0)
    first = tl.load(firsts + owner)
    last = tl.load(firsts + owner + 1)
    size = tl.load(sizes + owner)
    lanes = tl.arange(0, SPAN)

    count = tl.zeros([SPAN], tl.float64)
    total = tl.zeros([SPAN], tl.float64)
    absolute = tl.zeros([SPAN], tl.float64)
    high = tl.zeros([SPAN], tl.float64)
    zeros = tl.zeros([SPAN], tl.float64)
    tiny = tl.zeros([SPAN], tl.float64)
    nonfinite = tl.zeros([SPAN], tl.float64)
    for chunk in range(first, last, SPAN):
        index = chunk + lanes
        inside = index < last
        row = partials + index.to(tl.int64) * FIELDS
        held = tl.minimum(size - (index - first).to(tl.int64) * CHUNK, CHUNK).to(tl.float64)
        bad = tl.load(row + 7, mask=inside, other=0.0)
        good = tl.where(inside, held - bad, 0.0)
        count += good
        nonfinite += bad
        total += good * tl.load(row, mask=inside, other=0.0) + tl.load(row + 1, mask=inside, other=0.0)
        absolute += tl.load(row + 3, mask=inside, other=0.0)
        high = tl.maximum(high, tl.load(row + 4, mask=inside, other=0.0))
        zeros += tl.load(row + 5, mask=inside, other=0.0)
        tiny += tl.load(row + 6, mask=inside, other=0.0)
    n = tl.sum(count, 0)
    mean = tl.sum(total, 0) / n

    deviations = tl.zeros([SPAN], tl.float64)
    for chunk in range(first, last, SPAN):
        index = chunk + lanes
        inside = index < last
        row = partials + index.to(tl.int64) * FIELDS
        held = tl.minimum(size - (index - first).to(tl.int64) * CHUNK, CHUNK).to(tl.float64)
        good = tl.where(inside, held - tl.load(row + 7, mask=inside, other=0.0), 0.0)
        divisor = tl.where(good > 0, good, 1.0)
        moved = tl.load(row + 1, mask=inside, other=0.0) / divisor
        spread = tl.load(row + 2, mask=inside, other=0.0) - divisor * moved * moved
        away = tl.load(row, mask=inside, other=0.0) + moved - mean
        deviations += tl.where(good > 0, tl.where(spread > 0, spread, 0.0) + good * away * away, 0.0)
    around = tl.sum(deviations, 0)
    everything = size.to(tl.float64)

    out = rows + owner * FIELDS
    tl.store(out, tl.sqrt(around + n * mean * mean).to(tl.float32))
    tl.store(out + 1, mean.to(tl.float32))
    tl.store(out + 2, tl.sqrt(around / n).to(tl.float32))
    tl.store(out + 3, tl.where(n > 0, tl.max(high, 0), float("nan")).to(tl.float32))
    tl.store(out + 4, (tl.sum(absolute, 0) / n).to(tl.float32))
    tl.store(out + 5, (tl.sum(zeros, 0) / everything).to(tl.float32))
    tl.store(out + 6, (tl.sum(tiny, 0) / everything).to(tl.float32))
    tl.store(out + 7, tl.sum(nonfinite, 0).to(tl.float32))


@triton.jit
def count_chunks(
    addresses,
    sizes,
    owners,
    ordinals,
    counts,
    DTYPE: tl.constexpr,
    LOWEST: tl.constexpr,
    SIDE: tl.constexpr,
    SLOTS: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Add a chunk's histogram to its tensor's: SIDE bins for either sign and one for zeros, of SLOTS places.

    The exponent is read off the bits; the last place takes what belongs in no bin."""
    program = tl.program_id(0)
    owner = tl.load(owners + program)
    start = tl.load(ordinals + program).to(tl.int64) * CHUNK
    remaining = tl.minimum(tl.load(sizes + owner) - start, CHUNK).to(tl.int32)
    base = tl.load(addresses + owner).to(tl.pointer_type(DTYPE)) + start
    lanes = tl.arange(0, BLOCK)
    found = tl.zeros([SLOTS], tl.int32)
    for offset in range(0, remaining, BLOCK):
        inside = offset + lanes < remaining
        bits = tl.load(base + offset + lanes, mask=inside, other=0).to(tl.float32).to(tl.int32, bitcast=True)
        exponent = (bits >> 23) & 255
        place = tl.minimum(tl.maximum(exponent - 127 - LOWEST + 1, 0), SIDE - 1)
        place = tl.where(bits < 0, SIDE - 1 - place, SIDE + 1 + place)
        place = tl.where((bits & 0x7FFFFFFF) == 0, SIDE, place)
        place = tl.where(inside & (exponent < 255), place, SLOTS - 1)
        found += tl.histogram(place, SLOTS)
    slots = tl.arange(0, SLOTS)
    tl.atomic_add(counts + owner.to(tl.int64) * SLOTS + slots, found, mask=found > 0)
