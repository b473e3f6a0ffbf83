"""What a limit per broker comes to on a cluster: the most common misreading of a quota, as arithmetic."""

from dataclasses import dataclass

from kafka_quotas.core.quota_key import CONTROLLER_MUTATION_RATE, REQUEST_PERCENTAGE, QuotaKey


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """The brokers of a cluster, and on how many of them a topic has leaders (None: not asked)."""

    brokers: int
    topic: str | None = None
    leading_brokers: int | None = None

    def total(self, key: QuotaKey, limit: float | None) -> float | None:
        """The most that all brokers together let through (units of the key); None where that means nothing."""
        return None if limit is None or not multiplies(key, limit) else limit * self.brokers

    def topic_total(self, key: QuotaKey, limit: float | None) -> float | None:
        """The most that the topic's leaders together let through; None where that means nothing or was not asked."""
        if limit is None or self.leading_brokers is None or not multiplies(key, limit) or key.for_ip:
            return None
        return limit * self.leading_brokers


def multiplies(key: QuotaKey, limit: float) -> bool:
    """Whether a limit adds up over brokers. Mutations pass one controller; shares of a thread don't make a sum."""
    return key not in (CONTROLLER_MUTATION_RATE, REQUEST_PERCENTAGE) and limit < key.unlimited
