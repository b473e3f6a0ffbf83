"""What-if curves: the share of the clients that each default would throttle.

The neediest clients have curves of their own.
"""

from dataclasses import dataclass

from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.recommend.advice import Advice

Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCurve:
    """The effect of limits on one client."""

    user: str | None
    client_id: str | None
    points: Points
    """Limit, and share of its active time for which that throttles it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """The effect of default limits on the clients of one quota type."""

    quota_type: QuotaType
    default: float
    """The recommended default."""
    time_share: float
    """Tolerated share of active time, 0 to 1."""
    throttled_clients: Points
    """Limit, and share of the clients throttled for longer than tolerated."""
    neediest: tuple[ClientCurve, ...]
    """Curves of the neediest clients."""


def what_if(advice: Advice) -> WhatIf:
    """Compute the curves through all limits that were tried."""
    limits = [limit for limit, _ in advice.curve]
    return WhatIf(
        quota_type=advice.quota_type,
        default=advice.default,
        time_share=advice.tolerance.time_share,
        throttled_clients=tuple((limit, clients / advice.clients) for limit, clients in advice.curve),
        neediest=tuple(
            ClientCurve(
                user=each.user,
                client_id=each.client_id,
                points=tuple((limit, each.throttled_share(limit)) for limit in limits),
            )
            for each in advice.neediest
        ),
    )
