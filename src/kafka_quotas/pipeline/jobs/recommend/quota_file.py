"""The recommendation as quotas by entity, as a file for `apply`, and as rows with their evidence."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.quota_files.writer import FileFormat, file_text
from kafka_quotas.pipeline.buckets.proposal import DefaultScope
from kafka_quotas.pipeline.jobs.recommend.advice import Advice, Override, RecommendPlan, is_nameable
from kafka_quotas.pipeline.jobs.recommend.findings import default_reason, override_reason
from kafka_quotas.pipeline.tables.schemas import RECOMMENDATION

if TYPE_CHECKING:
    import pyarrow as pa

Limits = dict[Entity, dict[str, float]]


def recommended_limits(advices: Sequence[Advice], scope: DefaultScope) -> Limits:
    """Return the quotas to set by entity, sorted, without clients that have no name.

    Kafka sets no quota on an empty name.
    """
    limits: Limits = defaultdict(dict)
    for advice in advices:
        for entity, override in _entities(advice, scope):
            limits[entity][advice.quota_type.key.name] = advice.default if override is None else override.limit
    return {entity: limits[entity] for entity in sorted(limits, key=lambda each: each.sort_key)}


def _entities(advice: Advice, scope: DefaultScope) -> Iterator[tuple[Entity, Override | None]]:
    """Yield the entities to set quotas on: the default one, and each client with a name and its override."""
    yield scope.default_entity, None
    for each in advice.overrides:
        if is_nameable(each, scope):
            yield scope.entity(each.demand.user, each.demand.client_id), each


def recommended_text(advices: Sequence[Advice], plan: RecommendPlan, *, heading: Iterable[str]) -> Iterator[str]:
    """Yield the YAML file piece by piece, every entry below a comment with its reason."""
    yield from (f"# {line}\n" for line in heading)
    limits = recommended_limits(advices, plan.scope)
    reasons: dict[Entity, list[str]] = defaultdict(list)
    for advice in advices:
        for entity, own in _entities(advice, plan.scope):
            reason = default_reason(advice, plan) if own is None else override_reason(advice, own)
            reasons[entity].append(f"{advice.quota_type.key.name}: {reason}")
    pieces = iter(file_text(limits.items(), FileFormat.YAML))
    yield next(pieces)
    for entity in limits:
        yield from (f"\n  # {line}" for line in reasons[entity])
        yield next(pieces)
    yield from pieces


def recommendation_table(cluster: str, advices: Sequence[Advice], scope: DefaultScope) -> "pa.Table":
    """Return the rows of the table `recommendation`, without what all rows of a run have in common."""
    import pyarrow as pa  # noqa: PLC0415 - the command's help must not load it

    from kafka_quotas.pipeline.tables.results import fields_of  # noqa: PLC0415 - as above

    return pa.Table.from_pylist(recommendation_rows(cluster, advices, scope), pa.schema(fields_of(RECOMMENDATION)))


def recommendation_rows(cluster: str, advices: Sequence[Advice], scope: DefaultScope) -> list[dict[str, Any]]:
    """Return the rows of the table `recommendation`.

    Clients without a name are in it as overrides that can't be set.
    """
    rows = []
    for advice in advices:
        common = {"cluster": cluster, "quota_type": advice.quota_type.value}
        peak = advice.default if advice.peak is None else advice.peak
        rows.append(
            {
                **common,
                "kind": "default",
                "user": None,
                "client_id": None,
                "value": advice.default,
                "evidence": json.dumps(_default_evidence(advice)),
                "throttled_share": advice.largest_tolerated_share,
                "headroom": advice.default / peak,
            }
        )
        for each in advice.overrides:
            evidence = _override_evidence(advice, each) | {"can_be_set": is_nameable(each, scope)}
            rows.append(
                {
                    **common,
                    "kind": "override",
                    "user": each.demand.user,
                    "client_id": each.demand.client_id,
                    "value": each.limit,
                    "evidence": json.dumps(evidence),
                    "throttled_share": each.throttled_share,
                    "headroom": each.limit / each.demand.peak,
                }
            )
    return rows


def _default_evidence(advice: Advice) -> dict[str, Any]:
    tolerance = advice.tolerance
    return {
        "clients": advice.clients,
        "clients_with_overrides": len(advice.overrides),
        "choices": [{"overrides": number, "default": default} for number, default in advice.choices],
        "tolerated_time_share": tolerance.time_share,
        "headroom": tolerance.headroom,
        "wanted": advice.wanted_default,
        "clients_held_back_while_recorded": advice.held,
        "clients_under_default": {
            "enough": advice.fitting,
            "unknown": advice.unknown_default,
            "throttled": advice.exceeding_default,
        },
        "brokers": [
            {
                "broker_id": each.broker_id,
                "limits": each.limits,
                "wanted": each.wanted,
                "at_ms": each.at_ms,
                "allowed": each.allowed,
                "replication": each.replication,
                "capacity": each.capacity,
                "fits": each.fits,
            }
            for each in advice.loads
        ],
    }


def _override_evidence(advice: Advice, override: Override) -> dict[str, Any]:
    demand = override.demand
    return {
        "busiest_broker": demand.busiest.broker_id,
        "needed": demand.needed,
        "wanted": override.wanted,
        "is_lower_bound": demand.is_lower_bound,
        "confidence": demand.implied.confidence,
        "implied": asdict(demand.implied),
        "p99": demand.p99,
        "peak": demand.peak,
        "skew": demand.skew(len(advice.loads)),
        "throttled_share_at_default": override.throttled_share_at_default,
        "brokers": [
            {"broker_id": each.broker_id, "needed": each.needed, "p99": each.p99, "peak": each.peak}
            for each in demand.brokers
        ],
    }
