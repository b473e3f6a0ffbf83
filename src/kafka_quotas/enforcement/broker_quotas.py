"""The quotas of one upstream broker: quotas hold per broker, so each broker has buckets of its own.

Invariants: all connections to one broker share one `BrokerQuotas`, and so its buckets, whichever listener they came by.
"""

from typing import NamedTuple

from kafka_quotas.core.entity import Entity
from kafka_quotas.core.quota_config import QuotaWindow
from kafka_quotas.core.quota_manager import ClientQuotaManager, Limiter, QuotaType

ENFORCED = (QuotaType.PRODUCE, QuotaType.FETCH)
"""The quota types that the daemon enforces."""


class ClientLimits(NamedTuple):
    """The handles of one user and client-id; they stay right when quotas change."""

    produce: Limiter
    fetch: Limiter


class BrokerQuotas:
    """The quota managers of one broker."""

    def __init__(self, window: QuotaWindow) -> None:
        self._managers = {quota_type: ClientQuotaManager(quota_type, window) for quota_type in ENFORCED}

    def manager(self, quota_type: QuotaType) -> ClientQuotaManager:
        """The manager of one of the `ENFORCED` types."""
        return self._managers[quota_type]

    def limits(self, user: str, client_id: str) -> ClientLimits:
        """The handles of a user's client-id."""
        return ClientLimits(
            self._managers[QuotaType.PRODUCE].limiter(user, client_id),
            self._managers[QuotaType.FETCH].limiter(user, client_id),
        )

    def update(self, quota_type: QuotaType, entity: Entity, limit: float | None, *, static: bool) -> None:
        """Nothing; the limit of an entity holds from now on (None: it is gone), the history of its bucket stays."""
        manager = self._managers[quota_type]
        if static:
            manager.update_static_quota(entity, limit)
        else:
            manager.update_quota(entity, limit)

    def expire_idle(self, now_ms: int) -> None:
        """Nothing; buckets without a record for an hour are forgotten, as a broker does."""
        for manager in self._managers.values():
            manager.expire_idle(now_ms)
