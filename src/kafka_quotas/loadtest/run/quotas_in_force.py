"""Which quotas hold for the clients of a run, by Kafka's resolution over all that a store holds."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kafka_quotas.core.model.quota_filter import EVERYTHING
from kafka_quotas.core.model.quota_key import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    QuotaKey,
    Unit,
)
from kafka_quotas.core.model.units import format_bytes, format_quota_value
from kafka_quotas.core.resolution.effective import ANONYMOUS, EffectiveQuota, EffectiveQuotas
from kafka_quotas.loadtest.plan.plan import ClientName
from kafka_quotas.loadtest.plan.workload import Workload
from kafka_quotas.stores.store import QuotaEntry, Store

LOCAL_ADDRESS = "127.0.0.1"
"""Where the clients of a run come from, as far as it can be told: the connection quota of this address is theirs."""

KEY_OF = {
    Workload.PRODUCE: PRODUCER_BYTE_RATE,
    Workload.CONSUME: CONSUMER_BYTE_RATE,
    Workload.REQUESTS: REQUEST_PERCENTAGE,
    Workload.MUTATE: CONTROLLER_MUTATION_RATE,
    Workload.CONNECT: CONNECTION_CREATION_RATE,
}
"""The quota that limits each workload most directly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaInForce:
    """The limit for one client under one key (None: unlimited), and the bucket that it shares with others."""

    limit: float | None
    bucket: tuple[str, str] | None


InForce = Mapping[tuple[ClientName, QuotaKey], QuotaInForce]
"""What holds for each client of a run, by client and key."""


def quotas_in_force(entries: Iterable[QuotaEntry], names: Sequence[ClientName]) -> InForce:
    """What holds for each of the clients under every key, given all that is stored."""
    resolver = EffectiveQuotas([(entry.entity, entry.quotas) for entry in entries])
    from_here = resolver.for_ip(LOCAL_ADDRESS)
    found: dict[tuple[ClientName, QuotaKey], QuotaInForce] = {}
    for name in names:
        for quota in (*resolver.for_client(name.user or ANONYMOUS, name.client_id or ""), from_here):
            found[name, quota.key] = QuotaInForce(limit=_limit(quota), bucket=quota.bucket)
    return found


def stored_in_force(store: Store, names: Sequence[ClientName]) -> InForce:
    """The same, asked of a store; raises what `describe` raises."""
    return quotas_in_force(store.describe(EVERYTHING), names)


def differences(before: InForce, after: InForce) -> tuple[str, ...]:
    """What is different now, one line each; two clients with the same change are told once, by the first."""
    told: dict[tuple[QuotaKey, float | None, float | None], str] = {}
    counts: dict[tuple[QuotaKey, float | None, float | None], int] = {}
    for (name, key), quota in after.items():
        old = before[name, key].limit
        if quota.limit != old:
            change = (key, old, quota.limit)
            counts[change] = counts.get(change, 0) + 1
            told.setdefault(change, f"{key.name} of {name.label}: {_shown(key, old)} became {_shown(key, quota.limit)}")
    return tuple(
        line if counts[change] == 1 else f"{line} (and of {counts[change] - 1} others)" for change, line in told.items()
    )


def _limit(quota: EffectiveQuota) -> float | None:
    """The limit, None where nothing matches or what matches says "no limit"."""
    return None if quota.limit is None or quota.limit >= quota.key.unlimited else quota.limit


def _shown(key: QuotaKey, limit: float | None) -> str:
    if limit is None:
        return "no limit"
    return f"{format_bytes(limit)}/s" if key.unit is Unit.BYTES_PER_SECOND else format_quota_value(key, limit)
