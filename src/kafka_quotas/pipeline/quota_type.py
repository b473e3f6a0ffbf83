"""The quotas that an event can be charged to, by the names that the tables carry."""

from enum import StrEnum

from kafka_quotas.core.quota_key import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)


class QuotaType(StrEnum):
    """Kafka's `QuotaType` of clients, in the lower case that metrics of brokers show."""

    PRODUCE = "produce"
    FETCH = "fetch"
    REQUEST = "request"
    MUTATION = "mutation"

    @property
    def quota_key(self) -> str:
        """The name of the quota key that bounds it."""
        return _KEYS[self]


_KEYS = {
    QuotaType.PRODUCE: PRODUCER_BYTE_RATE.name,
    QuotaType.FETCH: CONSUMER_BYTE_RATE.name,
    QuotaType.REQUEST: REQUEST_PERCENTAGE.name,
    QuotaType.MUTATION: CONTROLLER_MUTATION_RATE.name,
}
