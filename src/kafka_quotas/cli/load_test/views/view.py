"""A load test for people: live on standard error, the result as a table, a line for each check, and a last line.

The live view is off where standard error is no terminal. Of many clients it shows those that are throttled most, then
the fastest, and a line with the sum of all.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from kafka_quotas import loadtest
from kafka_quotas.cli.framework.commands import is_verbose
from kafka_quotas.cli.output.listing import Cell, Listing, Output, Table
from kafka_quotas.cli.output.render import folded, is_terminal, print_listing, takes_every_letter, write
from kafka_quotas.core.model.quota_key import REQUEST_PERCENTAGE
from kafka_quotas.core.model.value_format import format_count, format_duration_us, format_quota
from kafka_quotas.loadtest import UNITS, ClientProgress, RunProgress, Watcher

if TYPE_CHECKING:
    from rich.console import RenderableType


MOST_ROWS = 40
"""Clients in a table for people; where there are more, those come first that did not get what they should."""
_P99 = 0.99
_MOST_NAMES = 4
_MARKS = {loadtest.State.MET: "\N{CHECK MARK}", loadtest.State.UNCHECKED: "\N{EN DASH}"}
_FAILED = "\N{BALLOT X}"
_PLAIN_MARKS = str.maketrans({_MARKS[loadtest.State.MET]: "+", _MARKS[loadtest.State.UNCHECKED]: "-", _FAILED: "x"})


def print_load(result: loadtest.LoadResult, output: Output) -> None:
    """Print the result, and a line for each check where the output is a table."""
    print_listing(load_listing(result), output)
    if output is not Output.TABLE:
        return
    for line in judgement_lines(result, verbose=is_verbose()):
        write(folded(marked(line, sys.stdout)), sys.stdout)
    for warning in result.warnings:
        write(folded(f"warning: {warning}"), sys.stdout)
    if result.interrupted:
        write("interrupted: this is what was measured until then", sys.stdout)


def marked(line: str, stream: TextIO) -> str:
    """Return the line with marks that the stream can show."""
    return line if takes_every_letter(stream) else line.translate(_PLAIN_MARKS)


def verdict_line(result: loadtest.LoadResult) -> str:
    """Return how the run ended, in one line that begins with PASS, FAIL or VOID."""
    states = {state: [each for each in result.judgements if each.state is state] for state in loadtest.State}
    if result.interrupted:
        return f"VOID: interrupted after {result.elapsed_s:.0f} s"
    if found := states[loadtest.State.VOID]:
        about = f"{found[0].entity}: " if found[0].entity else ""
        return f"VOID: this run proves nothing: {about}{found[0].evidence}"
    checks = sum(len(each) for state, each in states.items() if state is not loadtest.State.UNCHECKED)
    if found := states[loadtest.State.NOT_MET]:
        return f"FAIL: {_few(found)} not met, of {format_count(checks, 'check')}"
    if found := states[loadtest.State.UNDECIDED]:
        return f"VOID: {_few(found)} undecided, because the figures scatter too much"
    unchecked = len(states[loadtest.State.UNCHECKED])
    if not checks:
        return f"PASS: nothing failed, but none of {format_count(unchecked, 'check')} could be made"
    return f"PASS: {format_count(checks, 'check')} met" + (f", {unchecked} could not be made" if unchecked else "")


def _few(judgements: Sequence[loadtest.Judgement]) -> str:
    names = [
        each.evidence.partition(": ")[0]
        if each.aspect is loadtest.Aspect.EXPECTATION
        else " ".join(filter(None, (each.entity, each.aspect.label)))
        for each in judgements
    ]
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def load_listing(result: loadtest.LoadResult) -> Listing:
    """Return the result with its versioned document."""
    mixed = len({entity.workload for entity in result.entities}) > 1  # then the workloads, else the latency fits
    does, latency = ("does, ", "") if mixed else ("", "p99>, ")
    window = f"{result.window.samples} x {result.window.window_s} s"
    judged_s = max(0.0, result.elapsed_s - result.warmup_s)
    shown = "" if len(result.entities) <= MOST_ROWS else f", {MOST_ROWS} of {len(result.entities)} clients"
    return Listing(
        noun=loadtest.RUN_NOUN,
        version=loadtest.RUN_VERSION,
        data=loadtest.run_document(result),
        table=Table.of(
            f"client, {does}achieved>, quota>, ratio>, throttled>, {latency}verdict",
            [_row(entity, result, mixed=mixed) for entity in first_entities(result)],
            f"{judged_s:.0f} s of load after {result.warmup_s:.0f} s of warm-up, quota window {window}{shown}",
        ),
    )


def first_entities(result: loadtest.LoadResult) -> Sequence[loadtest.ClientResult]:
    """Return the clients to show: of too many those that failed, then the fastest."""
    if len(result.entities) <= MOST_ROWS:
        return result.entities
    troubled = {judgement.entity for judgement in result.judgements if not judgement.ok}
    ordered = sorted(result.entities, key=lambda each: (each.name.label not in troubled, -each.verdict.achieved))
    return ordered[:MOST_ROWS]


def judgement_lines(result: loadtest.LoadResult, *, verbose: bool = False) -> list[str]:
    """Return a line with a mark for each threshold and each kind of check, those that failed last.

    Evidence is there for what is not met; with `verbose` every judgement has a line of its own with its evidence.
    """
    if verbose:
        return [_evidence_line(judgement) for judgement in result.judgements]
    groups: dict[tuple[loadtest.Aspect, loadtest.State], list[str]] = {}
    lines: list[str] = []
    for each in filter(lambda judgement: judgement.ok, result.judgements):
        if each.aspect in (loadtest.Aspect.EXPECTATION, loadtest.Aspect.RUN):
            lines.append(f"{_MARKS[each.state]} {each.evidence}")
        else:
            groups.setdefault((each.aspect, each.state), []).append(each.entity or "")
    failed = [_evidence_line(judgement) for judgement in result.judgements if not judgement.ok]
    more = [f"{_FAILED} {len(failed) - MOST_ROWS} more are not met"] if len(failed) > MOST_ROWS else []
    order = list(loadtest.Aspect)
    grouped = []
    for aspect, state in sorted(groups, key=lambda key: order.index(key[0])):
        names = groups[aspect, state]
        whose = ", ".join(names) if len(names) <= _MOST_NAMES else f"{len(names)} clients"
        about = f": {whose}" if any(names) else ""
        grouped.append(
            f"{_MARKS[state]} {aspect.label}{about}" + (" not checked" if state is loadtest.State.UNCHECKED else "")
        )
    return [*grouped, *lines, *failed[:MOST_ROWS], *more]


def _verdict_text(entity: loadtest.ClientResult, result: loadtest.LoadResult) -> str:
    verdict = entity.verdict
    is_unlimited = verdict.kind is loadtest.ObservationKind.UNLIMITED
    failed = {each.aspect for each in result.judgements if each.entity == entity.name.label and not each.ok}
    is_void = any(
        each.aspect is loadtest.Aspect.RUN and each.state is loadtest.State.VOID for each in result.judgements
    )
    is_without_effect = loadtest.Aspect.ISOLATION in failed and entity.effect is not None and not entity.effect.is_shown
    troubles = (
        ("VOID", is_void),
        ("NOT JUDGED", verdict.too_short),
        ("RECORDS LOST", entity.delivery is not None and entity.delivery.state is loadtest.State.NOT_MET),
        ("FAILED", loadtest.Aspect.DELIVERY in failed),
        ("NOT HELD", is_over_quota(verdict)),
        ("HINDERED" if verdict.upper is None else "TOO LITTLE", not verdict.ok),
        ("UNANSWERED", loadtest.Aspect.BOOKS in failed),
        ("UNDECIDED" if entity.effect is not None and not entity.effect.is_refuted else "NO EFFECT", is_without_effect),
        ("DISTURBED", loadtest.Aspect.ISOLATION in failed),
        ("THROTTLE TIME DIFFERS", loadtest.Aspect.THROTTLE in failed),
        ("not judged", verdict.state is loadtest.State.UNCHECKED),
    )
    return next((word for word, is_so in troubles if is_so), "unhindered" if is_unlimited else "held")


def is_over_quota(verdict: loadtest.ClientVerdict) -> bool:
    """Return whether a client got more than its quota allows."""
    ratio, upper = verdict.ratio, verdict.upper
    return not verdict.ok and ratio is not None and upper is not None and ratio > upper


def achieved_text(entity: loadtest.ClientResult) -> str:
    """Format the achieved rate, or why there is none although records were acknowledged."""
    if entity.verdict.achieved == 0 and entity.acked and entity.verdict.span_ms <= 0:
        return "too short to measure"
    return entity.unit.text(entity.verdict.achieved)


def quota_text(entity: loadtest.ClientResult) -> str:
    """Format the quotas of rate and time, the first with its parts where several brokers enforce it."""
    quota = entity.verdict.quota
    time_quota = dict(entity.quotas).get(REQUEST_PERCENTAGE.name)
    parts = "" if entity.enforcers == 1 else f" ({entity.enforcers} brokers)"
    texts = [] if quota is None else [f"{entity.unit.text(quota)}{parts}"]
    if time_quota is not None:
        texts.append(f"{format_quota(REQUEST_PERCENTAGE.name, time_quota)} of a thread")
    if texts or entity.verdict.kind is loadtest.ObservationKind.UNJUDGED:  # which may be limited by what no rate shows
        return ", ".join(texts)
    return "unlimited"


def _evidence_line(judgement: loadtest.Judgement) -> str:
    about = f"{judgement.entity}: {judgement.aspect.label} " if judgement.entity else f"{judgement.aspect.label}: "
    return f"{_MARKS.get(judgement.state, _FAILED)} {about}{judgement.state.value}: {judgement.evidence}"


def client_cells(entity: loadtest.ClientResult, result: loadtest.LoadResult) -> tuple[str, ...]:
    """Return the rate, quota, their ratio, throttling, p99 and outcome of a client."""
    ratio, throttle, response = entity.verdict.ratio, entity.throttle, entity.response
    p99 = f"{'> ' * response.is_bound(_P99)}{format_duration_us(response.p99_us)}" if response.count else ""
    return (
        achieved_text(entity),
        quota_text(entity),
        "" if ratio is None else f"{ratio:.3f}",
        f"{throttle.count}x {format_duration_us(throttle.sum_ms * 1000)}" if throttle.count else "never",
        p99,
        _verdict_text(entity, result),
    )


def _row(entity: loadtest.ClientResult, result: loadtest.LoadResult, *, mixed: bool) -> list[Cell]:
    *cells, p99, outcome = client_cells(entity, result)
    if not mixed:
        return [entity.name.label, *cells, p99, outcome]
    does = f"{entity.workload}{'' if entity.workload is loadtest.Workload.REQUESTS else 's'}"
    return [entity.name.label, does, *cells, outcome]


_BAR = 24
_SHARE_BAR = 10
_ROWS = 15
TITLES = ("client", "does", "rate", "quota", "of it", "throttled", "waiting")


@contextmanager
def live_watcher(title: str) -> Iterator[Watcher | None]:
    """Yield a watcher that draws the live view, None where standard error is no terminal."""
    if not is_terminal(sys.stderr):
        yield None
        return
    from rich.console import Console  # noqa: PLC0415 - only a live view pays for Rich
    from rich.live import Live  # noqa: PLC0415

    with Live(console=Console(file=sys.stderr, highlight=False), transient=True, auto_refresh=False) as live:
        yield lambda progress: live.update(live_view(progress, title), refresh=True)


def live_view(progress: RunProgress, title: str) -> "RenderableType":
    """Return the view as something that Rich draws."""
    from rich.console import Group  # noqa: PLC0415 - loaded by now
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in TITLES:
        table.add_column(name, justify="right" if name in ("rate", "quota", "throttled", "waiting") else "left")
    for row in progress_rows(progress):
        table.add_row(*(Text(cell) for cell in row))
    return Group(Text(headline(progress, title), style="bold"), table)


def headline(progress: RunProgress, title: str) -> str:
    """Return what runs, how far it is, and the time left."""
    done_s, most_s = progress.done_s, progress.most_s
    share = done_s / most_s if most_s else 1.0
    phase = "warming up" if progress.warming_up else "measuring"
    left_s = max(most_s - done_s, 0.0)
    return f"{title} {bar(share)} {done_s:.0f} of {most_s:.0f} s, {phase}, {left_s:.0f} s left"


def progress_rows(progress: RunProgress) -> list[tuple[str, ...]]:
    """Return one row per client, and for many clients a sum of all."""
    entities = progress.entities
    if len(entities) <= _ROWS:
        return [_live_row(entity) for entity in entities]
    chosen = sorted(entities, key=lambda each: (-each.throttle_sum_ms, -each.rate))[:_ROWS]
    return [*(_live_row(entity) for entity in chosen), *_sums(entities)]


def bar(share: float, *, width: int = _BAR) -> str:
    """Return a bar that is full at a share of 1."""
    filled = round(min(max(share, 0.0), 1.0) * width)
    return "━" * filled + "╌" * (width - filled)


def _live_row(entity: ClientProgress) -> tuple[str, ...]:
    load = entity.entity
    unit = UNITS[load.workload]
    share = None if load.quota is None else entity.rate / load.quota
    return (
        load.name.label + (" (control)" if load.control else ""),
        load.workload.value,
        unit.text(entity.rate),
        "none" if load.quota is None else unit.text(load.quota),
        "" if share is None else f"{bar(share, width=_SHARE_BAR)} {share:.2f}",
        _throttled(entity.throttle_count, entity.throttle_sum_ms),
        f"{entity.waiting:,}",
    )


def _sums(entities: Sequence[ClientProgress]) -> Iterator[tuple[str, ...]]:
    for unit in dict.fromkeys(UNITS[entity.entity.workload] for entity in entities):
        alike = [entity for entity in entities if UNITS[entity.entity.workload] is unit]
        throttled = _throttled(sum(each.throttle_count for each in alike), sum(each.throttle_sum_ms for each in alike))
        rate = unit.text(sum(each.rate for each in alike))
        yield (f"all {len(alike):,}", "", rate, "", "", throttled, f"{sum(each.waiting for each in alike):,}")


def _throttled(count: int, sum_ms: float) -> str:
    return f"{count:,}x {format_duration_us(sum_ms * 1000)}" if count else ""
