"""The interfaces through which `kafka-configs` reaches brokers and ZooKeeper, without any rule of ours."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from kafka_quotas.core.errors import StoreError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_filter import QuotaFilter
from kafka_quotas.stores.store import QuotaEntry


class BrokerAnswerError(StoreError):
    """An error that a broker answered, with its own text, and Kafka's name of the error as `code`."""

    def __init__(self, message: str, *, code: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.code = code


class RawQuotas(Protocol):
    """Quotas at brokers, whose calls may raise `BrokerAnswerError` or `StoreUnreachableError`."""

    url: str
    """The address under which `open_store` opens the same quotas."""

    def describe(self, quota_filter: QuotaFilter) -> list[QuotaEntry]:
        """Return the matching entries, sorted by entity."""
        ...

    def alter(self, entity: Entity, changes: Sequence[tuple[str, float | None]]) -> None:
        """Set each key, or remove it where the value is None, in this order and even twice."""

    def close(self) -> None:
        """Release the connections."""


class UserConfigs(Protocol):
    """The configurations of users by name (None: the default user), read or refused by a `StoreError`."""

    def of_user(self, name: str | None) -> Mapping[str, str]:
        """Return the stored configuration of a user, empty where there is none."""
        ...

    def of_all_users(self) -> list[tuple[str | None, Mapping[str, str]]]:
        """Return every user with the stored configuration, sorted by name, the default user last."""
        ...

    def close(self) -> None:
        """Release the connections."""
