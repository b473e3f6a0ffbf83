"""What a report of recorded traffic tells, all in one: usage, limits, what-ifs and the recommendation."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka_quotas.commands.pipeline.jobs import FolderJobs
from kafka_quotas.commands.pipeline.recommend import RecommendRequest, RecommendResult, recommend_from
from kafka_quotas.core.errors import UsageError
from kafka_quotas.pipeline.engine.runner import EventsWatcher, RecordedEvents, open_events

if TYPE_CHECKING:
    from kafka_quotas.pipeline.buckets.proposal import Proposal
    from kafka_quotas.pipeline.recommend.job import Recommendation
    from kafka_quotas.pipeline.report.traffic import HeatMap, Traffic
    from kafka_quotas.pipeline.report.what_if import WhatIf
    from kafka_quotas.pipeline.usage.tables import UsageTables

_HEAT_ROWS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRequest:
    """What is recommended from, and the quotas in force that usage is held against."""

    recommend: RecommendRequest
    quotas: "Proposal"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportResult:
    """What the report tells: each client's traffic, each limit's use, when it was, what-ifs, what to set.

    `clients` are told apart as the recommendation does, `limited` as the quotas in force do.
    """

    events: RecordedEvents
    quotas: str
    clients: "tuple[Traffic, ...]"
    limited: "tuple[Traffic, ...]"
    heat: "HeatMap"
    what_ifs: "tuple[WhatIf, ...]"
    recommendation: "Recommendation"


def report(request: ReportRequest, watcher: EventsWatcher, *, step: Callable[[str], None]) -> ReportResult:
    """All that the report tells. `step` is told what is being done.

    Raises `UsageError` for a folder without events, and what `recommend` raises.
    """
    with open_events(request.recommend.events, watcher) as events:
        advised = recommend_from(events, request.recommend, step=step)
        step("usage by quota")
        from kafka_quotas.pipeline.usage.task import UsagePlan  # noqa: PLC0415 - loads the kernels

        plan = UsagePlan(quotas=request.quotas, seconds=events.recorded.seconds, window=request.recommend.window)
        in_force = FolderJobs(events=events).usage(plan)
    return _result(request, advised, in_force)


def _result(request: ReportRequest, advised: RecommendResult, in_force: "UsageTables") -> ReportResult:
    from kafka_quotas.pipeline.report.time_slots import slots_of  # noqa: PLC0415 - loads the kernels
    from kafka_quotas.pipeline.report.traffic import heat_map, limited_traffic, traffic_of  # noqa: PLC0415
    from kafka_quotas.pipeline.report.what_if import what_if  # noqa: PLC0415

    events, own, cluster = advised.events, advised.recommendation.observed, advised.recommendation.cluster
    if events.first_ms is None or events.last_ms is None:
        raise UsageError("there are no events", hint="kafka-quotas pipeline ingest reads them")
    clients = traffic_of(own, cluster=cluster, seconds=events.seconds)
    largest = _largest(clients)
    return ReportResult(
        events=events,
        quotas=request.quotas.name,
        clients=clients,
        limited=limited_traffic(traffic_of(in_force, cluster=cluster, seconds=events.seconds)),
        heat=heat_map(own, slots_of(events.first_ms, events.last_ms), largest, cluster=cluster),
        what_ifs=tuple(what_if(each) for each in advised.recommendation.advices),
        recommendation=advised.recommendation,
    )


def _largest(clients: "tuple[Traffic, ...]") -> list[tuple[str | None, str | None]]:
    """The clients that wrote and read the most bytes, the largest first."""
    amounts: dict[tuple[str | None, str | None], float] = {}
    for each in clients:
        if each.quota_type.value in ("produce", "fetch"):
            name = each.user, each.client_id
            amounts[name] = amounts.get(name, 0.0) + each.amount
    return sorted(amounts, key=lambda name: (-amounts[name], name[0] or "", name[1] or ""))[:_HEAT_ROWS]
