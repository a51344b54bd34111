"""What came of several seeds, as tables for the terminal: the verdict first, then the figures."""

from __future__ import annotations

from collections.abc import Iterator

from torchdoctor.console import RenderableType, Table, Text
from torchdoctor.experiments.seed_spread import Against, SeedSpread, VariantSpread, describe_test, shown, signed
from torchdoctor.experiments.starts import Starts
from torchdoctor.report.letter import change, headline
from torchdoctor.report.sheet import QUIET, Page, Sheet, indent, labelled, shorten, title, unbroken
from torchdoctor.report.text import count, listed, number

SEEDS_SHOWN = 20
"""Up to so many seeds each has a row."""
CONFIGURATIONS_SHOWN = 30
ENDS = 4
"""Columns of figures before those of the extremes, for which a sweep has no room."""


def render_spread(result: SeedSpread) -> Sheet:
    return Sheet(lambda page, width: _spread(result, page, width))


def render_starts(result: Starts) -> Sheet:
    return Sheet(lambda page, width: _starts(result, page, width))


def _spread(result: SeedSpread, page: Page, width: int) -> Iterator[RenderableType]:
    yield Text()
    yield title("torchdoctor seeds", page, width)
    yield Text()
    yield indent(page.line(result.verdict, "bold"), 2)
    yield Text()
    yield from _about(result, page)
    yield Text()
    yield indent(_table(result, page), 2)
    yield Text()
    if len(result.seeds) <= SEEDS_SHOWN and result.best is None:
        yield indent(_by_seed(result, page), 2)
        yield Text()
    yield from _tests(result, page)
    for note in result.notes:
        yield page.bulleted(page.line(f"note: {note}"), 2)
    for variant in result.variants:
        for failure in variant.failed[:1]:
            yield from _failure(variant, failure, page)
    if result.notes:
        yield Text()
    for finding in result.findings:
        yield headline(finding, page)
        yield indent(page.line(finding.title), 2)
        yield from change(finding, page, 2, "To change: ")
        yield indent(page.line(f"read more: {finding.docs}", QUIET), 2)
        yield Text()


def _about(result: SeedSpread, page: Page) -> Iterator[RenderableType]:
    first = result.variants[0]
    yield labelled("seeds", f"{_seeds(result.seeds)}, passed {first.seed_words}", page)
    if first.seeded:
        yield labelled("", f"which are {listed(first.seeded)}", page)
    for variant in result.variants[1:]:
        if variant.seed_words != first.seed_words:
            yield labelled("", f"{variant.name}: {variant.seed_words}", page)
    way = "higher is better" if result.higher_is_better else "lower is better"
    others = f"; others: {listed(result.other_metrics)} (--metric NAME --reuse)" if result.other_metrics else ""
    yield labelled("metric", f"{result.metric}, its {result.which} value, {way}{others}", page)
    if result.best is None:
        for variant in result.variants:
            yield from (labelled("changed", how, page) for how in variant.how)
    elif first.how:
        yield labelled("changed", f"such as {'; '.join(first.how)}", page)
    folder = next((f for v in result.variants for f in v.folders if f), None)
    if folder is not None:
        yield unbroken("runs", f"{shorten(folder.rpartition('-seed-')[0], page.cwd)}-seed-...", page)


def _table(result: SeedSpread, page: Page) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    table.add_column("variant", overflow="fold", min_width=12)
    columns = ("seeds", "mean", "sd", "95 % interval", "least", "most")
    for heading in columns if result.best is None else columns[:ENDS]:
        table.add_column(heading, justify="right", no_wrap=True)
    if result.best is not None:
        table.add_column("against the best", no_wrap=True)
    by_name = {a.name: a for a in result.against}
    for variant in result.variants[:CONFIGURATIONS_SHOWN]:
        row = _row(variant, page)
        if result.best is not None:
            row = [*row[: 1 + ENDS], _standing(variant, result.best, by_name.get(variant.name))]
        table.add_row(*row)
    hidden = len(result.variants) - CONFIGURATIONS_SHOWN
    if hidden > 0:
        table.add_row(Text(f"and {hidden} worse; --json FILE lists them all", style=QUIET))
    return table


def _row(variant: VariantSpread, page: Page) -> list[RenderableType]:
    spread = variant.spread
    runs = f"{spread.n if spread else 0}" + (f" of {len(variant.seeds)}" if variant.failed else "")
    if spread is None:
        return [page.line(variant.name), runs, "-", "-", "-", "-", "-"]
    if spread.sd is None or spread.low is None or spread.high is None:
        return [page.line(variant.name), runs, number(spread.mean), "-", "-", "-", "-"]
    wide = spread.high - spread.low
    interval = f"{shown(spread.low, wide)} to {shown(spread.high, wide)}"
    mean, sd, *ends = (shown(x, spread.sd) for x in (spread.mean, spread.sd, spread.least, spread.most))
    return [page.line(variant.name), runs, mean, sd, interval, *ends]


def _standing(variant: VariantSpread, best: str, against: Against | None) -> str:
    if variant.name == best:
        return "the best"
    if against is None:
        return "-"
    if against.same:
        return "the same"
    return f"{'worse' if against.told_apart else 'within noise'} (p {against.p:.2g})"


def _by_seed(result: SeedSpread, page: Page) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    table.add_column("seed", justify="right")
    for variant in result.variants:
        table.add_column(page.line(variant.name), justify="right")
    pair = len(result.variants) == 2
    if pair:
        table.add_column("difference", justify="right")
    spreads = [v.spread.sd for v in result.variants if v.spread is not None and v.spread.sd]
    wide = min(spreads, default=0.0)
    for i, seed in enumerate(result.seeds):
        values = [v.values[i] if i < len(v.values) else None for v in result.variants]
        row = [str(seed), *("-" if x is None else shown(x, wide) for x in values)]
        if pair:
            a, b = values
            row.append("-" if a is None or b is None else signed(b - a, wide))
        table.add_row(*row)
    return table


def _tests(result: SeedSpread, page: Page) -> Iterator[RenderableType]:
    if result.best is not None:
        if result.against:
            yield indent(page.line("p values: paired t tests against the best, after Holm", QUIET), 2)
            yield Text()
        return
    for against in (a for a in result.against if not a.same):
        if len(result.against) > 1:
            yield indent(page.line(f"{against.name} against {against.baseline}", QUIET), 2)
        for line in describe_test(against):
            yield page.bulleted(page.line(line), 2)
        yield Text()
    lines = result._of_one() if not result.against else []
    for line in lines:
        yield page.bulleted(page.line(line), 2)
    if lines:
        yield Text()


def _failure(variant: VariantSpread, failure: dict[str, object], page: Page) -> Iterator[RenderableType]:
    words = f"{variant.name}, seed {failure['seed']}: {failure['status']}"
    words += f", {failure['error']}" if failure["error"] else ""
    yield indent(page.line(words), 4)
    tail = failure["tail"]
    if isinstance(tail, list) and not failure["error"]:
        yield from (page.code(f"| {line}", 4, QUIET) for line in tail[-4:])
    if failure["log"]:
        yield unbroken("output", shorten(str(failure["log"]), page.cwd), page)


def _seeds(seeds: list[int]) -> str:
    if len(seeds) > 2 and seeds == list(range(seeds[0], seeds[0] + len(seeds))):
        return f"{len(seeds)} ({seeds[0]} to {seeds[-1]})"
    return listed(map(str, seeds), most=8)


def _starts(result: Starts, page: Page, width: int) -> Iterator[RenderableType]:
    fact = result.fact
    yield Text()
    yield title("torchdoctor seeds --same", page, width)
    yield Text()
    words = str(result).splitlines()[0] if result.equal else result.findings[0].title if result.findings else ""
    yield indent(page.line(words[:1].upper() + words[1:], "bold"), 2)
    yield Text()
    yield labelled("script", result.command, page)
    seed = f"{fact.seed}, passed {result.seed_words}" if fact.seed is not None else result.seed_words
    yield labelled("seed", seed, page)
    yield labelled("starts", f"{count(fact.starts, 'start')} of {count(fact.steps, 'step')}", page)
    for folder in result.folders[:2]:
        yield unbroken("run", shorten(folder, page.cwd), page)
    yield Text()
    for finding in result.findings:
        yield headline(finding, page)
        for evidence in finding.evidence:
            yield page.bulleted(page.line(evidence.text), 2)
        yield from change(finding, page, 2, "To change: ")
        yield indent(page.line(f"read more: {finding.docs}", QUIET), 2)
        yield Text()
