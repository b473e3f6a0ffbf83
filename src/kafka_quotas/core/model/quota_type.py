"""What quota managers limit, and how they measure it."""

from enum import Enum

from kafka_quotas.core.model.quota_key import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    REQUEST_RATE,
    QuotaKey,
)


class QuotaType(Enum):
    """The kinds of quotas, one per quota manager."""

    PRODUCE = "produce"
    FETCH = "fetch"
    REQUEST = "request"
    CONTROLLER_MUTATION = "controller_mutation"
    REQUEST_RATE = "request_rate"
    """Requests counted, which brokers don't limit."""

    @property
    def key(self) -> QuotaKey:
        """The quota key under which limits of this type are stored."""
        return _KEYS[self]


_KEYS = {
    QuotaType.PRODUCE: PRODUCER_BYTE_RATE,
    QuotaType.FETCH: CONSUMER_BYTE_RATE,
    QuotaType.REQUEST: REQUEST_PERCENTAGE,
    QuotaType.CONTROLLER_MUTATION: CONTROLLER_MUTATION_RATE,
    QuotaType.REQUEST_RATE: REQUEST_RATE,
}


class RateAlgorithm(Enum):
    """The algorithms of rates other than those of controller mutations."""

    WINDOW = "window"
    """Kafka's sliding window."""
    SMOOTH = "smooth"
    """A bucket of one second."""
