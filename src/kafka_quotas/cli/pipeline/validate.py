"""`kafka-quotas pipeline validate`: whether the replay predicts what brokers did."""

import sys
from collections.abc import Callable, Iterator
from typing import Annotated

import typer

from kafka_quotas.cli.framework.option_groups import option_info
from kafka_quotas.cli.options.stores import ListingView, StoreOrContext
from kafka_quotas.cli.options.windows import WindowOptions
from kafka_quotas.cli.output.listing import TABLE_VIEW, Cell, Listing, columns, listed
from kafka_quotas.cli.output.render import print_listing, write
from kafka_quotas.cli.pipeline.options import (
    Data,
    EngineOptions,
    Quotas,
    bucket_text,
    note_changes,
    proposal_in_force,
    rates,
    recorded_events,
    rows_limit,
)
from kafka_quotas.core.model.quota_key import QuotaType
from kafka_quotas.pipeline.engine.job import require_libraries
from kafka_quotas.pipeline.jobs.validate import BucketCheck, BucketVerdict, ValidatePlan, Validation
from kafka_quotas.pipeline.jobs.validate import validate as compare

_COLUMNS = columns(
    "broker>!, quota!, bucket, limit>!, peak>!, observed>!, simulated>!, error>!, requests>!, scraped>!, reckoned>!, "
    "error>!, verdict!"
)


Tolerance = Annotated[
    float, option_info("--tolerance SHARE", help="The error to tolerate, as a share of what was observed, from 0.")
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
    settings = windows.settings()
    plan = ValidatePlan(
        quotas=proposal_in_force(quotas, store, engine.events(data)),
        tolerance=tolerance,
        window=settings.client,
        controller_window=settings.controller,
    )
    with recorded_events(engine, data) as (events, _), events.errors("summing up what was compared"):
        found = compare(events, plan, limit=rows_limit(output))
    print_listing(validation_listing(found), output)
    note_changes(quotas, plan.quotas, found.events)
    for line in _remarks(found):
        write(line, sys.stderr)
    if not found.ok:
        raise typer.Exit(1)


def validation_listing(found: Validation) -> Listing:
    """List the buckets, first those with an error, then by broker, quota type and name."""
    events, buckets = found.events, found.buckets
    left = f", {found.count - len(buckets):,} buckets more: --limit 0" if found.count > len(buckets) else ""
    has_rates = any(each.scrapes for each in buckets)
    return listed(
        "pipeline-validate",
        found,
        _COLUMNS if has_rates else (*_COLUMNS[:9], _COLUMNS[-1]),
        [_cells(each, has_rates=has_rates) for each in buckets],
        caption=f"{events.count:,} events in {events.seconds:,} s under {found.plan.quotas.name}: "
        f"throttle times as observed and as simulated{left}\n"
        "requests: how many were throttled, observed / simulated",
    )


def _cells(check: BucketCheck, *, has_rates: bool) -> list[Cell]:
    kind = check.quota_type.value
    simulated: list[Cell] = ["", "", f"{check.observed_throttled:,}"]
    if check.simulated_throttle_ms is not None:
        expected = _range("-", "{:,}".format, check.simulated_throttled, check.simulated_throttled_at_most)
        simulated = [
            _range(" to ", _seconds, check.simulated_throttle_ms, check.simulated_at_most_ms),
            _share(check.throttle_error),
            f"{check.observed_throttled:,} / {expected}",
        ]
    compared: list[Cell] = ["", "", ""]
    if check.scrapes:
        compared = [*rates(kind, check.scraped_rate, check.reckoned_rate), _share(check.rate_error)]
    return [
        str(check.broker_id),
        kind,
        bucket_text(check.user, check.client_id),
        *rates(kind, check.limit, check.peak),
        _seconds(check.observed_throttle_ms),
        *simulated,
        *(compared if has_rates else ()),
        check.verdict.value,
    ]


def _remarks(found: Validation) -> Iterator[str]:
    """Yield what to know of the comparison, a line each, and the verdict at the end."""
    plan, met, missed = found.plan, found.met, found.missed
    if found.is_capped:
        yield (
            "note: a throttled fetch is answered empty, so its size is in no log: fetches are checked by their rate, "
            "which may not exceed the quota"
        )
    if found.is_range:
        yield (
            "note: requests under two quotas are answered with the longer throttle time: simulated is from the "
            "bucket's own quota to the sum of all"
        )
    most = 1 + plan.tolerance
    for each in found.buckets:
        name = bucket_text(each.user, each.client_id)
        if each.limit is None and each.observed_throttle_ms and each.verdict is BucketVerdict.MISSED:
            yield f"missed: {name} was throttled at broker {each.broker_id}, and no quota in the file concerns it"
        elif each.quota_type is QuotaType.FETCH and each.limit is not None and each.peak > each.limit * most:
            yield f"missed: {name} got more from broker {each.broker_id} than its quota lets through"
    window_s = plan.window.samples * plan.window.window_s
    if missed and found.events.seconds < 10 * window_s:
        yield (
            f"note: what was charged in the {window_s} s before the recording began is not known; in one of "
            f"{found.events.seconds} s that matters"
        )
    within = f"within {plan.tolerance:.0%}"
    if missed:
        yield f"verdict: NOT met: {missed} of {met + missed} buckets that can be compared are not {within}"
    elif not met:
        yield "verdict: NOT met: nothing can be compared; do these quotas concern any recorded client?"
    else:
        compared = f"all {met} that can be compared are" if met > 1 else f"{met} that can be compared is"
        yield f"verdict: met: {compared} {within}"


def _range(to: str, text: Callable[[int], str], *ends: int | None) -> str:
    return to.join(text(each) for each in dict.fromkeys(ends) if each is not None)


def _seconds(duration_ms: int) -> str:
    return f"{duration_ms / 1000:.1f} s"


def _share(error: float | None) -> str:
    return "all of it" if error is None else f"{error:.1%}"
