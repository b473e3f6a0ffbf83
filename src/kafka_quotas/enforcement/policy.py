"""What is enforced: the quotas of a store over static ones, applied live to every broker's buckets.

Invariants: a change of the store reaches each bucket before its next use and takes no history away; every broker has
the same limits; a broker met later gets the limits of that moment.
**Source:** KIP-13 for static quotas, which lie below all others (levels 9 and 10).
"""

from collections.abc import Iterable
from typing import TypeAlias

from kafka_quotas.core.entity import ABSENT, Entity
from kafka_quotas.core.quota_config import QuotaWindow
from kafka_quotas.core.quota_manager import QuotaType
from kafka_quotas.enforcement.broker_quotas import ENFORCED, BrokerQuotas
from kafka_quotas.enforcement.terms import TermsBook
from kafka_quotas.stores.store import QuotaEntry

NodeId: TypeAlias = int | None
"""A broker's node id; None for the one behind the bootstrap address while its id isn't known."""

_Limits: TypeAlias = dict[tuple[QuotaType, Entity], float]


class Policy:
    """The limits in force and the buckets of each broker."""

    def __init__(
        self, window: QuotaWindow, *, mutation_window: QuotaWindow | None = None, book: TermsBook | None = None
    ) -> None:
        self.window = window
        self._mutation_window = mutation_window
        self._book = book or TermsBook()
        self._limits: dict[bool, _Limits] = {False: {}, True: {}}
        self._brokers: dict[NodeId, BrokerQuotas] = {}
        self.cluster = self._made(None)
        """The quotas of clients whose limits are of all brokers together."""

    @property
    def brokers(self) -> dict[NodeId, BrokerQuotas]:
        """Each broker's quotas by node id."""
        return self._brokers

    @property
    def limit_count(self) -> int:
        """How many limits are in force, static ones included."""
        return sum(len(limits) for limits in self._limits.values())

    def broker(self, node_id: NodeId) -> BrokerQuotas:
        """The quotas of a broker, made with all limits at its first mention."""
        quotas = self._brokers.get(node_id)
        if quotas is None:
            quotas = self._brokers[node_id] = self._made(self.cluster)
            for static, limits in self._limits.items():
                for (quota_type, entity), limit in limits.items():
                    quotas.update(quota_type, entity, limit, static=static)
        return quotas

    def name_bootstrap(self, node_id: int) -> None:
        """Nothing; the broker behind the bootstrap address turned out to be this node, and keeps its buckets."""
        if None in self._brokers and node_id not in self._brokers:
            self._brokers[node_id] = self._brokers.pop(None)

    def apply(self, entries: Iterable[QuotaEntry], *, static: bool = False) -> int:
        """How many limits differ from before; entities that are not among the entries lose theirs."""
        wanted = dict(_limits_of(entries))
        current = self._limits[static]
        changes = [
            (key, wanted.get(key)) for key in current.keys() | wanted.keys() if current.get(key) != wanted.get(key)
        ]
        for (quota_type, entity), limit in changes:
            for quotas in (self.cluster, *self._brokers.values()):
                quotas.update(quota_type, entity, limit, static=static)
        self._limits[static] = wanted
        return len(changes)

    def expire_idle(self, now_ms: int) -> None:
        """Nothing; buckets without a record for an hour are forgotten."""
        for quotas in (self.cluster, *self._brokers.values()):
            quotas.expire_idle(now_ms)

    def replace_book(self, book: TermsBook) -> None:
        """Nothing; the terms of this book hold from the next request on."""
        self._book = book
        for quotas in (self.cluster, *self._brokers.values()):
            quotas.replace_book(book)

    def _made(self, cluster: BrokerQuotas | None) -> BrokerQuotas:
        return BrokerQuotas(self.window, mutation_window=self._mutation_window, book=self._book, cluster=cluster)


def _limits_of(entries: Iterable[QuotaEntry]) -> Iterable[tuple[tuple[QuotaType, Entity], float]]:
    """The limits among some entries that the daemon enforces; entities of addresses have none."""
    for entry in entries:
        if entry.entity.user is ABSENT and entry.entity.client_id is ABSENT:
            continue
        for quota_type in ENFORCED:
            limit = entry.quotas.get(quota_type.key.name)
            if limit is not None:
                yield (quota_type, entry.entity), limit
