"""A store in memory, which can be told to fail."""

import math
from collections.abc import Collection, Mapping, Sequence

from kafka_quotas.core.errors import InvalidQuotaError, KafkaQuotasError, NotVisibleError, StoreUnreachableError
from kafka_quotas.core.groups.group import Group
from kafka_quotas.core.model.entity import EVERYTHING, Entity, QuotaFilter
from kafka_quotas.stores.address import StoreKind
from kafka_quotas.stores.store import Alteration, AlterationResult, QuotaEntry, Snapshot


class MemoryStore:
    """A store that refuses values of 0 and below."""

    kind = StoreKind.LOCAL

    def __init__(
        self,
        name: str = "memory",
        content: dict[Entity, dict[str, float]] | None = None,
        *,
        fails: Mapping[Entity, KafkaQuotasError] | None = None,
        unseen: Collection[Entity] = (),
        writes_left: float = math.inf,
    ) -> None:
        """Entities in `fails` are refused, those in `unseen` are changed and do not show.

        After `writes_left` calls that write it is lost.
        """
        self.url = f"local:/{name}"
        self.content = content or {}
        self.fails = fails or {}
        self.unseen = unseen
        self.writes_left = writes_left
        self.writes = 0

    def groups(self) -> tuple[Group, ...]:
        return ()

    def describe(self, quota_filter: QuotaFilter) -> list[QuotaEntry]:
        assert quota_filter == EVERYTHING
        return [QuotaEntry(entity=entity, quotas=dict(quotas)) for entity, quotas in self.content.items()]

    def alter(self, entries: Sequence[Alteration], *, validate_only: bool = False) -> list[AlterationResult]:
        if not validate_only:
            if self.writes >= self.writes_left:
                raise StoreUnreachableError("gone")
            self.writes += 1
        return [AlterationResult(entity=each.entity, error=self._error(each, validate_only)) for each in entries]

    def _error(self, entry: Alteration, validate_only: bool) -> KafkaQuotasError | None:
        for key, value in entry.changes.items():
            if value is not None and not value > 0:
                return InvalidQuotaError(f"{key} must be greater than 0")
        if validate_only:
            return None
        if entry.entity in self.fails:
            return self.fails[entry.entity]
        set_to = {key: value for key, value in entry.changes.items() if value is not None}
        self.content.setdefault(entry.entity, {}).update(set_to)
        return NotVisibleError("not seen") if entry.entity in self.unseen else None

    def watch(self, since: str | None, *, timeout_s: float) -> Snapshot | None:
        raise AssertionError("nobody watches it")

    def close(self) -> None:
        """Hold nothing."""
