"""`kafka-quotas pipeline validate`: whether the replay predicts what brokers did."""

import math
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from kafka_quotas.cli.options.stores import ListingView, StoreOrContext
from kafka_quotas.cli.options.windows import WindowOptions
from kafka_quotas.cli.output.document import documents_of
from kafka_quotas.cli.output.render import TABLE_VIEW, Cell, Listing, Table, columns, print_listing, write
from kafka_quotas.cli.pipeline.options import Data, EngineOptions, job_watcher
from kafka_quotas.cli.pipeline.proposals import QUOTAS_HELP, bucket_text, note_changes, proposal_in_force
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.model.value_format import format_typed_rate
from kafka_quotas.pipeline.engine.choice import require_libraries
from kafka_quotas.pipeline.engine.runner import open_events
from kafka_quotas.pipeline.validate.check import BucketCheck, ThrottleCheck, ValidatePlan, Verdict

if TYPE_CHECKING:
    from kafka_quotas.pipeline.validate.job import Validation

_COLUMNS = columns(
    "broker>!, quota!, bucket, limit>!, peak>!, observed>!, simulated>!, error>!, requests>!, scraped>!, reckoned>!, "
    "error>!, verdict!"
)


def validation_listing(found: "Validation") -> Listing:
    """List the buckets, first those with an error, then by broker, quota type and name."""
    events, tolerance = found.events, found.plan.tolerance
    buckets = found.buckets
    left = f", {found.count - len(buckets):,} buckets more: --limit 0" if found.count > len(buckets) else ""
    has_rates = any(each.rate is not None for each in buckets)
    return Listing(
        noun="pipeline-validate",
        data={
            "events": events.count,
            "seconds": events.seconds,
            "quotas": found.plan.quotas.name,
            "tolerance": tolerance,
            "ok": found.ok,
            "buckets": documents_of(buckets),
        },
        items="buckets",
        table=Table(
            columns=_COLUMNS if has_rates else (*_COLUMNS[:9], _COLUMNS[-1]),
            rows=[_cells(each, has_rates=has_rates) for each in buckets],
            caption=f"{events.count:,} events in {events.seconds:,} s under {found.plan.quotas.name}: "
            f"throttle times as observed and as simulated{left}\n"
            "requests: how many were throttled, observed / simulated",
        ),
    )


def _cells(check: BucketCheck, *, has_rates: bool) -> list[Cell]:
    kind, throttle, rate = check.quota_type.value, check.throttle, check.rate
    compared = [
        _seconds(check.observed_throttle_ms),
        "" if throttle is None else _range(throttle.low_ms, throttle.high_ms),
        "" if throttle is None else _share(throttle.error),
        f"{check.observed_throttled:,}" if throttle is None else _counts(throttle),
    ]
    rates = [
        "" if rate is None else format_typed_rate(kind, rate.scraped),
        "" if rate is None else format_typed_rate(kind, rate.reckoned),
        "" if rate is None else _share(rate.error),
    ]
    return [
        str(check.broker_id),
        kind,
        bucket_text(check.user, check.client_id),
        format_typed_rate(kind, check.limit),
        format_typed_rate(kind, check.peak),
        *compared,
        *(rates if has_rates else ()),
        check.verdict.value,
    ]


def remarks(validation: "Validation") -> Iterator[str]:
    """Yield what to know of the comparison, a line each, and the verdict at the end."""
    if validation.is_capped:
        yield (
            "note: a throttled fetch is answered empty, so its size is in no log: fetches are checked by their rate, "
            "which may not exceed the quota"
        )
    if validation.is_range:
        yield (
            "note: requests under two quotas are answered with the longer throttle time: simulated is from the "
            "bucket's own quota to the sum of all"
        )
    for each in validation.buckets:
        if each.limit is None and each.observed_throttle_ms and each.verdict is Verdict.MISSED:
            name = bucket_text(each.user, each.client_id)
            yield f"missed: {name} was throttled at broker {each.broker_id}, and no quota in the file concerns it"
        elif each.is_exceeded:
            name = bucket_text(each.user, each.client_id)
            yield f"missed: {name} got more from broker {each.broker_id} than its quota lets through"
    yield from _unknown_begin(validation)
    yield _verdict(validation)


def _unknown_begin(validation: "Validation") -> Iterator[str]:
    window = validation.plan.window
    if validation.missed and validation.events.seconds < 10 * _window_s(window):
        yield (
            f"note: what was charged in the {_window_s(window)} s before the recording began is not known; in one of "
            f"{validation.events.seconds} s that matters"
        )


def _verdict(validation: "Validation") -> str:
    missed, met = validation.missed, validation.met
    within = f"within {validation.plan.tolerance:.0%}"
    if missed:
        return f"verdict: NOT met: {missed} of {met + missed} buckets that can be compared are not {within}"
    if not met:
        return "verdict: NOT met: nothing can be compared; do these quotas concern any recorded client?"
    return f"verdict: met: {'all ' if met > 1 else ''}{met} that can be compared {'are' if met > 1 else 'is'} {within}"


def _window_s(window: QuotaWindow) -> int:
    return window.samples * window.window_s


def _counts(throttle: ThrottleCheck) -> str:
    expected = f"{throttle.low_n:,}" if throttle.low_n == throttle.high_n else f"{throttle.low_n:,}-{throttle.high_n:,}"
    return f"{throttle.observed_n:,} / {expected}"


def _range(low_ms: int, high_ms: int) -> str:
    return _seconds(low_ms) if low_ms == high_ms else f"{_seconds(low_ms)} to {_seconds(high_ms)}"


def _seconds(duration_ms: int) -> str:
    return f"{duration_ms / 1000:.1f} s"


def _share(error: float) -> str:
    return "all of it" if math.isinf(error) else f"{error:.1%}"


_SHOWN_ROWS = 30

Quotas = Annotated[
    str | None,
    typer.Option(
        "--quotas",
        metavar="FILE|journal",
        help=QUOTAS_HELP,
    ),
]
Tolerance = Annotated[
    float,
    typer.Option(
        "--tolerance", metavar="SHARE", help="The error to tolerate, as a share of what was observed, from 0."
    ),
]


def validate(
    *,
    data: Data,
    quotas: Quotas = None,
    tolerance: Tolerance = 0.1,
    store: StoreOrContext,
    windows: WindowOptions,
    engine: EngineOptions,
    output: ListingView = TABLE_VIEW,
) -> None:
    """Compare what brokers did with a replay of the same traffic under the quotas that were in force.

    The throttle times that brokers announced are compared with those of the replay, and scraped byte rates with
    those of the events. The exit code is 1 if an error exceeds the tolerance, or nothing can be compared.
    """
    require_libraries()
    from kafka_quotas.pipeline.validate import job  # noqa: PLC0415 - loads the kernels

    settings, request = windows.settings(), engine.events(data)
    plan = ValidatePlan(
        quotas=proposal_in_force(quotas, store, request),
        tolerance=tolerance,
        window=settings.client,
        controller_window=settings.controller,
    )
    limit = (output.limit_or(_SHOWN_ROWS) or None) if output.is_table else None
    with (
        job_watcher() as watcher,
        open_events(request, watcher) as events,
        events.errors("summing up what was compared"),
    ):
        found = job.validate(events, plan, limit=limit)
    print_listing(validation_listing(found), output)
    note_changes(quotas, plan.quotas, found.events)
    for line in remarks(found):
        write(line, sys.stderr)
    if not found.ok:
        raise typer.Exit(1)
