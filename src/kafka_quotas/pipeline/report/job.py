"""The content of a report on recorded traffic: usage, limits, what-ifs and the recommendation."""

from collections.abc import Callable
from dataclasses import dataclass

from kafka_quotas.core.errors import UsageError
from kafka_quotas.pipeline.buckets.proposal import Proposal
from kafka_quotas.pipeline.engine.runner import OpenEvents
from kafka_quotas.pipeline.recommend.advice import RecommendPlan
from kafka_quotas.pipeline.recommend.job import Recommendation, recommend
from kafka_quotas.pipeline.report.heat_map import HeatMap, heat_map, slots_of
from kafka_quotas.pipeline.report.part_traffic import client_traffic, limited_traffic
from kafka_quotas.pipeline.report.traffic import ClientTraffic, LimitedTraffic
from kafka_quotas.pipeline.report.what_if import WhatIf, what_if
from kafka_quotas.pipeline.usage.job import usage
from kafka_quotas.pipeline.usage.task import UsagePlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The content of a report."""

    quotas: str
    """Name of the quotas in force."""
    clients: ClientTraffic
    """Traffic of the clients, in the scope of the recommendation."""
    limited: LimitedTraffic
    """Traffic of the buckets of the quotas in force that have a limit or were throttled."""
    heat: HeatMap
    """Traffic of the largest clients over time."""
    what_ifs: tuple[WhatIf, ...]
    recommendation: Recommendation


def report(events: OpenEvents, plan: RecommendPlan, quotas: Proposal, *, step: Callable[[str], None]) -> Report:
    """Compute the content of a report, with the errors of `recommend`.

    `quotas` are those in force. `step` is called with the name of each step as it begins.

    Raises:
        UsageError: There are no events.
    """
    recorded = events.recorded
    if recorded.first_ms is None or recorded.last_ms is None:
        raise UsageError("there are no events", hint="kafka-quotas pipeline ingest reads them")
    advised = recommend(events, plan, step=step)
    step("usage by quota")
    in_force = usage(events, UsagePlan(quotas=quotas, seconds=recorded.seconds, window=plan.window))
    own, cluster = advised.observed, advised.cluster
    with events.errors("summing up usage by client"):
        clients = client_traffic(own, cluster=cluster, seconds=recorded.seconds)
        return Report(
            quotas=quotas.name,
            clients=clients,
            limited=limited_traffic(in_force, cluster=cluster, seconds=recorded.seconds),
            heat=heat_map(own, slots_of(recorded.first_ms, recorded.last_ms), clients.busiest, cluster=cluster),
            what_ifs=tuple(map(what_if, advised.advices)),
            recommendation=advised,
        )
