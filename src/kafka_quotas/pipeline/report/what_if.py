"""What-if curves: which share of the clients each default would hold back, and the neediest clients one by one."""

from dataclasses import dataclass
from typing import Final

from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.recommend.advice import Advice
from kafka_quotas.pipeline.recommend.demand import Demand

_SHOWN_CLIENTS: Final = 4
Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCurve:
    """For one client: limit, and the share of its active time for which that holds it back."""

    user: str | None
    client_id: str | None
    points: Points


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """For one quota type, by default limit: the share of the clients held back for longer than `time_share`.

    `default` is the one that is recommended.
    """

    quota_type: QuotaType
    default: float
    time_share: float
    held_back_clients: Points
    neediest: tuple[ClientCurve, ...]


def what_if(advice: Advice) -> WhatIf:
    """The curves through all limits that were tried."""
    demands = advice.demands
    limits = sorted({trial.limit for each in demands for broker in each.brokers for trial in broker.trials})
    share = advice.tolerance.time_share
    return WhatIf(
        quota_type=advice.quota_type,
        default=advice.default,
        time_share=share,
        held_back_clients=tuple(
            (limit, sum(each.throttled_share(limit) > share for each in demands) / len(demands)) for limit in limits
        ),
        neediest=tuple(_curve(each, limits) for each in demands[: -_SHOWN_CLIENTS - 1 : -1]),
    )


def _curve(demand: Demand, limits: list[float]) -> ClientCurve:
    return ClientCurve(
        user=demand.user,
        client_id=demand.client_id,
        points=tuple((limit, demand.throttled_share(limit)) for limit in limits),
    )
