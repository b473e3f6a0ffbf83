"""The content of a report on recorded traffic: usage, limits, what-ifs and the recommendation."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka_quotas.commands.pipeline.recommend import RecommendRequest, RecommendResult, recommend_from
from kafka_quotas.core.errors import UsageError
from kafka_quotas.pipeline.engine.runner import EventsWatcher, RecordedEvents, open_events

if TYPE_CHECKING:
    from kafka_quotas.pipeline.buckets.proposal import Proposal
    from kafka_quotas.pipeline.recommend.job import Recommendation
    from kafka_quotas.pipeline.report.heat_map import HeatMap
    from kafka_quotas.pipeline.report.traffic import ClientTraffic, LimitedTraffic
    from kafka_quotas.pipeline.report.what_if import WhatIf
    from kafka_quotas.pipeline.usage.tables import UsageTables


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRequest:
    """The request for the recommendation, and the quotas in force to compare usage with."""

    recommend: RecommendRequest
    quotas: "Proposal"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportResult:
    """The content of a report."""

    events: RecordedEvents
    quotas: str
    """Name of the quotas in force."""
    clients: "ClientTraffic"
    """Traffic of the clients, in the scope of the recommendation."""
    limited: "LimitedTraffic"
    """Traffic of the buckets of the quotas in force that have a limit or were throttled."""
    heat: "HeatMap"
    """Traffic of the largest clients over time."""
    what_ifs: "tuple[WhatIf, ...]"
    recommendation: "Recommendation"


def report(request: ReportRequest, watcher: EventsWatcher, *, step: Callable[[str], None]) -> ReportResult:
    """Compute the content of a report.

    Errors of `recommend` pass through. `step` is called with the name of each step as it begins.

    Raises:
        UsageError: The folder has no events.
    """
    with open_events(request.recommend.events, watcher) as events:
        advised = recommend_from(events, request.recommend, step=step)
        step("usage by quota")
        from kafka_quotas.pipeline.usage.job import usage  # noqa: PLC0415 - loads the kernels
        from kafka_quotas.pipeline.usage.task import UsagePlan  # noqa: PLC0415

        plan = UsagePlan(quotas=request.quotas, seconds=events.recorded.seconds, window=request.recommend.plan.window)
        in_force = usage(events, plan)
        with events.errors("summing up usage by client"):
            return _result(request, advised, in_force)


def _result(request: ReportRequest, advised: RecommendResult, in_force: "UsageTables") -> ReportResult:
    from kafka_quotas.pipeline.report.heat_map import heat_map, slots_of  # noqa: PLC0415 - loads NumPy
    from kafka_quotas.pipeline.report.part_traffic import client_traffic, limited_traffic  # noqa: PLC0415
    from kafka_quotas.pipeline.report.what_if import what_if  # noqa: PLC0415

    events, own, cluster = advised.events, advised.recommendation.observed, advised.recommendation.cluster
    if events.first_ms is None or events.last_ms is None:
        raise UsageError("there are no events", hint="kafka-quotas pipeline ingest reads them")
    clients = client_traffic(own, cluster=cluster, seconds=events.seconds)
    return ReportResult(
        events=events,
        quotas=request.quotas.name,
        clients=clients,
        limited=limited_traffic(in_force, cluster=cluster, seconds=events.seconds),
        heat=heat_map(own, slots_of(events.first_ms, events.last_ms), clients.busiest, cluster=cluster),
        what_ifs=tuple(what_if(each) for each in advised.recommendation.advices),
        recommendation=advised.recommendation,
    )
