"""The evidence for a recommendation, as rows of the table `recommendation`."""

import json
from collections.abc import Sequence
from typing import Any

from kafka_quotas.pipeline.buckets.default_scope import DefaultScope
from kafka_quotas.pipeline.recommend.advice import Advice, Override
from kafka_quotas.pipeline.recommend.quota_file import is_nameable


def recommendation_rows(cluster: str, advices: Sequence[Advice], per: DefaultScope) -> list[dict[str, Any]]:
    """Return the rows of the table `recommendation`.

    Clients without a name are in it as overrides that can't be set.
    """
    rows = []
    for advice in advices:
        peak = max(each.peak for each in advice.demands if each.needed(advice.tolerance.time_share) <= advice.default)
        rows.append(
            {
                "cluster": cluster,
                "quota_type": advice.quota_type.value,
                "kind": "default",
                "user": None,
                "client_id": None,
                "value": advice.default,
                "evidence": json.dumps(default_evidence(advice)),
                "throttled_share": advice.largest_tolerated_share,
                "headroom": advice.default / peak,
            }
        )
        for each in advice.overrides:
            evidence = override_evidence(advice, each) | {"can_be_set": is_nameable(each, per)}
            rows.append(
                {
                    "cluster": cluster,
                    "quota_type": advice.quota_type.value,
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


def default_evidence(advice: Advice) -> dict[str, Any]:
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


def override_evidence(advice: Advice, override: Override) -> dict[str, Any]:
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
