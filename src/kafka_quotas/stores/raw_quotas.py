"""What `kafka-configs` needs of brokers and of ZooKeeper: quotas asked for as they are, without any rule of ours."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from kafka_quotas.core.errors import StoreError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_filter import QuotaFilter
from kafka_quotas.stores.store import QuotaEntry


class BrokerAnswerError(StoreError):
    """A broker's answer that is an error: `code` is Kafka's name of it, the message its text."""

    def __init__(self, message: str, *, code: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.code = code


class RawQuotas(Protocol):
    """Quotas at brokers. Every call may raise `BrokerAnswerError` or `StoreUnreachableError`."""

    url: str
    """The address under which `open_store` opens the same quotas."""

    def describe(self, quota_filter: QuotaFilter) -> list[QuotaEntry]:
        """The matching entries, sorted by entity."""
        ...

    def alter(self, entity: Entity, changes: Sequence[tuple[str, float | None]]) -> None:
        """Nothing; the keys are set, or removed where the value is None, in this order, also when one occurs twice."""
        ...

    def close(self) -> None:
        """Nothing; connections are released."""
        ...


class UserConfigs(Protocol):
    """The configurations of users as texts. Every call may raise a `StoreError`; None is the default user."""

    def of_user(self, name: str | None) -> Mapping[str, str]:
        """What is stored for a user, empty where nothing is."""
        ...

    def of_all_users(self) -> list[tuple[str | None, Mapping[str, str]]]:
        """Every user with what is stored, sorted by name, the default user last."""
        ...

    def close(self) -> None:
        """Nothing; connections are released."""
        ...
