"""The charges of a daemon that drains, since the moment at which its state was taken.

Its successor starts from that state; what the requests under way come to reaches it as sums per bucket.
"""

from collections.abc import Iterator
from typing import cast

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.quotas.quota_bucket import QuotaBucket
from kafka_quotas.core.quotas.quota_manager import ClientQuotaManager, QuotaType
from kafka_quotas.enforcement.config.client_policy import Mode
from kafka_quotas.enforcement.quotas.quota_registry import CLUSTER, QuotaRegistry
from kafka_quotas.enforcement.upgrade.messages import Charged


class ChargesSince:
    """The sums of what was charged to each bucket since it was last looked at."""

    def __init__(self, policy: QuotaRegistry, now_ms: int) -> None:
        """Start with no bucket seen: what is charged to a bucket before `note` is part of its state."""
        self._policy = policy
        self._since_ms = now_ms
        self._totals: dict[QuotaBucket, float] = {}

    def note(self, buckets: list[QuotaBucket]) -> None:
        """Note the totals of buckets at the moment whose state is handed over."""
        self._totals.update((bucket, bucket.total) for bucket in buckets)

    def take(self) -> Iterator[list[Charged]]:
        """Yield what was charged since the last call, in slices between which clients may be served."""
        sources = {manager: (broker, mode) for broker, mode, manager in self._managers()}
        for pairs in self._policy.pool.walk():
            charged = []
            for bucket, owner in pairs:
                manager = cast("ClientQuotaManager", owner)
                if bucket.recorded_ms is None or bucket.recorded_ms < self._since_ms or manager not in sources:
                    continue
                total = bucket.total
                amount = total - self._totals.get(bucket, 0.0)
                self._totals[bucket] = total
                if amount:
                    broker, mode = sources[manager]
                    user, client_id = bucket.name
                    charged.append(
                        Charged(
                            broker=broker,
                            mode=mode.value,
                            quota_type=manager.quota_type.value,
                            user=user,
                            client_id=client_id,
                            amount=amount,
                        )
                    )
            yield charged

    def _managers(self) -> Iterator[tuple[int | str | None, Mode, ClientQuotaManager]]:
        for mode, manager in self._policy.cluster.managers():
            yield CLUSTER, mode, manager
        for node_id, quotas in self._policy.brokers.items():
            for mode, manager in quotas.managers():
                yield node_id, mode, manager


def record_charged(policy: QuotaRegistry, rows: object, now_ms: int) -> int:
    """Record what a predecessor's clients were charged, and return the number of buckets.

    Args:
        policy: The quotas in force here.
        rows: Its message: a list of `Charged` as objects.
        now_ms: The time.

    Raises:
        ProtocolError: A row can't be read.
    """
    if not isinstance(rows, list):
        raise ProtocolError("the charges of an upgrade are not a list")
    try:
        for each in (Charged(**row) for row in rows):
            quotas = policy.cluster if each.broker == CLUSTER else policy.broker(_node_id(each.broker))
            manager = quotas.manager(QuotaType(each.quota_type), Mode(each.mode))
            manager.bucket_of((each.user, each.client_id)).record(float(each.amount), now_ms)
    except (TypeError, ValueError) as error:
        raise ProtocolError("the charges of an upgrade can't be read") from error
    return len(rows)


def _node_id(broker: int | str | None) -> int | None:
    return None if broker is None else int(broker)
