"""A load test for people: the result as a table with its evidence, in every form of output."""

import sys
from collections.abc import Sequence

from kafka_quotas.cli.output.render import Cell, Listing, Output, Table, columns, folded, print_listing, write
from kafka_quotas.core.model.quota_key import REQUEST_PERCENTAGE
from kafka_quotas.core.model.value_format import format_duration_us, format_quota
from kafka_quotas.loadtest.judgement import Aspect, Judgement, State
from kafka_quotas.loadtest.result.document import NOUN, VERSION, run_document
from kafka_quotas.loadtest.result.result import ClientResult, LoadResult
from kafka_quotas.loadtest.result.verdict import ObservationKind

MOST_ROWS = 40
"""Clients in a table for people; where there are more, those come first that did not get what they should."""
_P99 = 0.99
_MOST_EVIDENCE = 12  # clients whose every judgement is shown; with more clients, only those that are not met


def print_load(result: LoadResult, output: Output) -> None:
    """Print the result, with its evidence where the output is a table."""
    print_listing(load_listing(result), output)
    if output is not Output.TABLE:
        return
    for line in evidence_lines(result):
        write(folded(line), sys.stdout)
    for warning in result.warnings:
        write(folded(f"warning: {warning}"), sys.stdout)
    if result.interrupted:
        write("interrupted: this is what was measured until then", sys.stdout)


def load_listing(result: LoadResult) -> Listing:
    """Return the result with its versioned document."""
    mixed = len({entity.workload for entity in result.entities}) > 1  # then the workloads, else the latency fits
    does, latency = ("does, ", "") if mixed else ("", "p99>, ")
    return Listing(
        noun=NOUN,
        version=VERSION,
        data=run_document(result),
        table=Table(
            columns=columns(f"client, {does}achieved>, quota>, ratio>, throttled>, {latency}verdict"),
            rows=[_row(entity, verdict_text(entity, result), mixed=mixed) for entity in first_entities(result)],
            caption=_caption(result),
        ),
    )


def first_entities(result: LoadResult, most: int = MOST_ROWS) -> Sequence[ClientResult]:
    """Return the clients to show.

    If there are too many, those that failed come first, then the fastest.
    """
    if len(result.entities) <= most:
        return result.entities
    troubled = {judgement.entity for judgement in result.judgements if not judgement.ok}
    return sorted(result.entities, key=lambda entity: (entity.name.label not in troubled, -entity.verdict.achieved))[
        :most
    ]


def evidence_lines(result: LoadResult) -> list[str]:
    """Return one line per judgement.

    Of many clients it shows only the judgements that are not met, and how many are.
    """
    few = len(result.entities) <= _MOST_EVIDENCE
    shown = [judgement for judgement in result.judgements if few or judgement.entity is None or not judgement.ok]
    lines = [_evidence_line(judgement) for judgement in shown[:MOST_ROWS]]
    met = sum(judgement.state is State.MET for judgement in result.judgements if judgement not in shown)
    left = len(shown) - MOST_ROWS
    if left > 0:
        lines.append(f"{left} judgements more are not met or not checked")
    if met:
        lines.append(f"{met} judgements more are met")
    return lines


def verdict_text(entity: ClientResult, result: LoadResult) -> str:
    """Return the worst result of a client in a word or two."""
    verdict = entity.verdict
    is_unlimited = verdict.kind is ObservationKind.UNLIMITED
    failed = {each.aspect for each in result.judgements if each.entity == entity.name.label and not each.ok}
    is_void = any(each.aspect is Aspect.RUN and each.state is State.VOID for each in result.judgements)
    is_without_effect = Aspect.ISOLATION in failed and entity.effect is not None and not entity.effect.is_shown
    troubles = (
        ("VOID", is_void),
        ("NOT JUDGED", verdict.too_short),
        ("RECORDS LOST", entity.delivery is not None and entity.delivery.state is State.NOT_MET),
        ("FAILED", Aspect.DELIVERY in failed),
        ("HINDERED" if is_unlimited else "NOT HELD", not verdict.ok),
        ("UNANSWERED", Aspect.BOOKS in failed),
        ("UNDECIDED" if entity.effect is not None and not entity.effect.is_refuted else "NO EFFECT", is_without_effect),
        ("DISTURBED", Aspect.ISOLATION in failed),
        ("THROTTLE OFF", Aspect.THROTTLE in failed),
        ("not judged", verdict.state is State.UNCHECKED),
    )
    return next((word for word, is_so in troubles if is_so), "unhindered" if is_unlimited else "held")


def quota_text(entity: ClientResult) -> str:
    """Format the quotas of rate and time, the first with its parts where several brokers enforce it."""
    quota = entity.verdict.quota
    time_quota = dict(entity.quotas).get(REQUEST_PERCENTAGE.name)
    parts = "" if entity.enforcers == 1 else f" ({entity.enforcers} brokers)"
    texts = [] if quota is None else [f"{entity.unit.text(quota)}{parts}"]
    if time_quota is not None:
        texts.append(f"{format_quota(REQUEST_PERCENTAGE.name, time_quota)} of a thread")
    if texts or entity.verdict.kind is ObservationKind.UNJUDGED:  # which may be limited by what no rate shows
        return ", ".join(texts)
    return "unlimited"


def throttled_text(entity: ClientResult) -> str:
    """Format how often a client was throttled and for how long in total."""
    throttle = entity.throttle
    return f"{throttle.count}x {format_duration_us(throttle.sum_ms * 1000)}" if throttle.count else "never"


def p99_text(entity: ClientResult) -> str:
    """Format the p99 of the response time, marked where it is a lower bound, empty for none."""
    response = entity.response
    if not response.count:
        return ""
    return ("> " if response.is_bound(_P99) else "") + format_duration_us(response.p99_us)


def _evidence_line(judgement: Judgement) -> str:
    subject = judgement.entity if judgement.entity is not None else judgement.aspect.value
    about = f"{judgement.aspect.value} " if judgement.entity is not None else ""
    return f"{subject}: {about}{judgement.state.value}: {judgement.evidence}"


def _caption(result: LoadResult) -> str:
    window = f"{result.window_samples} x {result.window_size_s} s"
    judged_s = max(0.0, result.elapsed_s - result.warmup_s)
    shown = "" if len(result.entities) <= MOST_ROWS else f", {MOST_ROWS} of {len(result.entities)} clients"
    return f"{judged_s:.0f} s of load after {result.warmup_s:.0f} s of warm-up, quota window {window}{shown}"


def _row(entity: ClientResult, outcome: str, *, mixed: bool) -> list[Cell]:
    verdict = entity.verdict
    return [
        entity.name.label,
        *([_DOES[entity.workload.value]] if mixed else []),
        entity.unit.text(verdict.achieved),
        quota_text(entity),
        "" if verdict.ratio is None else f"{verdict.ratio:.3f}",
        throttled_text(entity),
        *([] if mixed else [p99_text(entity)]),
        outcome,
    ]


_DOES = {
    "produce": "produces",
    "consume": "consumes",
    "requests": "requests",
    "mutate": "mutates",
    "connect": "connects",
}
