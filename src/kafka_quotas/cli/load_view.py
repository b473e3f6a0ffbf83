"""A load test for people: the result as a table with its evidence, in every form of output."""

import sys
import textwrap

from kafka_quotas.cli.output import Output
from kafka_quotas.cli.render import Cell, Column, Listing, Table, is_terminal, print_listing, write
from kafka_quotas.core.units import format_bytes
from kafka_quotas.loadtest.report import NOUN, run_document
from kafka_quotas.loadtest.result import EntityResult, LoadResult
from kafka_quotas.loadtest.verdict import Kind

_WIDTH = 80


def print_load(result: LoadResult, output: Output) -> None:
    """Nothing; the result is on standard output."""
    print_listing(load_listing(result), output)
    if output is Output.TABLE:
        for entity in result.entities:
            write(folded(f"{entity.name.label}: {told_verdict(entity)}: {entity.verdict.evidence}"), sys.stdout)
        if result.interrupted:
            write("interrupted: this is what was measured until then", sys.stdout)


def load_listing(result: LoadResult) -> Listing:
    """The result with its versioned document."""
    mixed = len({entity.direction for entity in result.entities}) > 1  # then the directions, else the latency fits
    titles = (
        *("client", *(["does"] if mixed else []), "achieved", "quota", "ratio", "throttled"),
        *([] if mixed else ["p99"]),
        "verdict",
    )
    figures = ("achieved", "quota", "ratio", "throttled", "p99")
    return Listing(
        noun=NOUN,
        data=run_document(result),
        table=Table(
            columns=[Column(title=title, figures=title in figures) for title in titles],
            rows=[_row(entity, mixed=mixed) for entity in result.entities],
            caption=_caption(result),
        ),
        records=_records(result),
    )


def told_verdict(entity: EntityResult) -> str:
    """The verdict in a word or two."""
    if entity.failures:
        return "RECORDS LOST"
    if entity.verdict.too_short:
        return "NOT JUDGED"
    if not entity.verdict.ok:
        return "HINDERED" if entity.verdict.kind is Kind.UNLIMITED else "NOT HELD"
    return "unhindered" if entity.verdict.kind is Kind.UNLIMITED else "held"


def folded(text: str) -> str:
    """The text folded to the width of a terminal; as it is where a program reads it."""
    if not is_terminal(sys.stdout):
        return text
    return textwrap.fill(text, _WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def duration_text(microseconds: float) -> str:
    """A duration with three digits at most: `820 us`, `12.3 ms`, `4.56 s`."""
    for scale, unit in ((1e6, "s"), (1e3, "ms")):
        if microseconds >= scale:
            return f"{microseconds / scale:.3g} {unit}"
    return f"{microseconds:.0f} us"


def _caption(result: LoadResult) -> str:
    window = f"{result.window_samples} x {result.window_size_s} s"
    judged_s = max(0.0, result.elapsed_s - result.warmup_s)
    return f"{judged_s:.0f} s of load after {result.warmup_s:.0f} s of warm-up, quota window {window}"


def _row(entity: EntityResult, *, mixed: bool) -> list[Cell]:
    verdict, response = entity.verdict, entity.response
    throttle = entity.throttle
    return [
        entity.name.label,
        *([f"{entity.direction.value}s"] if mixed else []),
        f"{format_bytes(verdict.achieved_bytes_per_second)}/s",
        _quota(entity),
        "" if verdict.ratio is None else f"{verdict.ratio:.3f}",
        f"{throttle.count}x {duration_text(throttle.sum_ms * 1000)}" if throttle.count else "never",
        *([] if mixed else [duration_text(response.p99_us) if response.count else ""]),
        told_verdict(entity),
    ]


def _quota(entity: EntityResult) -> str:
    """The quota, and what it is made of where several brokers keep it."""
    quota = entity.verdict.quota_bytes_per_second
    if quota is None:
        return "unlimited"
    parts = "" if entity.enforcers == 1 else f" ({entity.enforcers} brokers)"
    return f"{format_bytes(quota)}/s{parts}"


def _records(result: LoadResult) -> Table:
    """One row per client with plain figures, for CSV."""
    titles = (
        "user",
        "client_id",
        "direction",
        "kind",
        "ok",
        "achieved_bytes_per_second",
        "quota_bytes_per_second",
        "ratio",
        "cycles",
        "acked",
        "throttle_count",
        "throttle_sum_ms",
        "response_p50_us",
        "response_p99_us",
    )
    rows: list[list[Cell]] = [
        [
            entity.name.user,
            entity.name.client_id,
            entity.direction.value,
            entity.verdict.kind.value,
            "true" if entity.ok else "false",
            round(entity.verdict.achieved_bytes_per_second, 3),
            entity.verdict.quota_bytes_per_second,
            None if entity.verdict.ratio is None else round(entity.verdict.ratio, 6),
            entity.verdict.cycles,
            entity.acked,
            entity.throttle.count,
            entity.throttle.sum_ms,
            entity.response.p50_us,
            entity.response.p99_us,
        ]
        for entity in result.entities
    ]
    return Table(columns=[Column(title=title) for title in titles], rows=rows)
