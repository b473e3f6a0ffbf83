"""The evidence for a recommendation, as rows of the table `recommendation`."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kafka_quotas.pipeline.buckets.proposal import DefaultScope
from kafka_quotas.pipeline.recommend.advice import Advice, Override
from kafka_quotas.pipeline.recommend.quota_file import is_nameable
from kafka_quotas.pipeline.tables.schemas import RECOMMENDATION

if TYPE_CHECKING:
    import pyarrow as pa


def recommendation_table(cluster: str, advices: Sequence[Advice], scope: DefaultScope) -> "pa.Table":
    """Return the table `recommendation`."""
    import pyarrow as pa  # noqa: PLC0415 - the command's help must not load it

    rows = recommendation_rows(cluster, advices, scope)
    return pa.Table.from_pylist(rows, schema=RECOMMENDATION.arrow_schema())


def recommendation_rows(cluster: str, advices: Sequence[Advice], scope: DefaultScope) -> list[dict[str, Any]]:
    """Return the rows of the table `recommendation`.

    Clients without a name are in it as overrides that can't be set.
    """
    rows = []
    for advice in advices:
        common = {"cluster": cluster, "quota_type": advice.quota_type.value}
        peak = max(each.peak for each in advice.demands if each.needed(advice.tolerance.time_share) <= advice.default)
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
    """Return the figures that decided the default."""
    tolerance = advice.tolerance
    return {
        "clients": len(advice.demands),
        "clients_with_overrides": len(advice.overrides),
        "tolerated_clients_share": tolerance.clients_share,
        "tolerated_time_share": tolerance.time_share,
        "brokers": [
            {"broker_id": each.broker_id, "demanded": each.demanded, "capacity": each.capacity, "fits": each.fits}
            for each in advice.loads
        ],
    }


def _override_evidence(advice: Advice, override: Override) -> dict[str, Any]:
    """Return the figures that decided a client's override."""
    demand, share = override.demand, advice.tolerance.time_share
    return {
        "busiest_broker": demand.busiest(share).broker_id,
        "needed": demand.needed(share),
        "p99": demand.p99,
        "peak": demand.peak,
        "skew": demand.skew(len(advice.loads)),
        "throttled_share_at_default": override.throttled_share_at_default,
        "brokers": [
            {"broker_id": each.broker_id, "needed": each.needed(share), "p99": each.p99, "peak": each.peak}
            for each in demand.brokers
        ],
    }
