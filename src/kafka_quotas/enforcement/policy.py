"""What is enforced: the quotas of a store over static ones, and those of a policy file, live in every broker's buckets.

Invariants: a change of the store reaches each bucket before its next use and takes no history away; every broker has
the same limits; a broker met later gets the limits of that moment.
**Source:** KIP-13 for static quotas, which lie below all others (levels 9 and 10).
"""

from collections.abc import Iterable
from dataclasses import replace
from enum import Enum
from typing import TypeAlias

from kafka_quotas.core.entity import ABSENT, Entity
from kafka_quotas.core.mutation_bucket import MutationAlgorithm
from kafka_quotas.core.quota_config import QuotaWindow
from kafka_quotas.core.quota_manager import QuotaType
from kafka_quotas.enforcement.broker_quotas import ENFORCED, BrokerQuotas
from kafka_quotas.enforcement.default_costs import DEFAULT_COSTS
from kafka_quotas.enforcement.policy_file import PolicyFile
from kafka_quotas.enforcement.terms import Terms, TermsBook
from kafka_quotas.stores.store import QuotaEntry

NodeId: TypeAlias = int | None
"""A broker's node id; None or below 0 for the one behind a bootstrap address while its id isn't known."""

_Limits: TypeAlias = dict[tuple[QuotaType, Entity], float]


def broker_name(node_id: NodeId) -> str:
    """Return a broker as it is shown: its node id, or `bootstrap`, `bootstrap-1` and so on while that isn't known."""
    if node_id is None:
        return "bootstrap"
    return str(node_id) if node_id >= 0 else f"bootstrap{node_id}"


class Source(Enum):
    """Where limits come from; each replaces its own alone."""

    STORE = "store"
    STATIC = "static"
    FILE = "policy file"


class Policy:
    """The limits in force and the buckets of each broker."""

    def __init__(
        self,
        window: QuotaWindow,
        *,
        mutation_window: QuotaWindow | None = None,
        mutations: MutationAlgorithm = MutationAlgorithm.TOKEN_BUCKET,
        book: TermsBook | None = None,
    ) -> None:
        self.window = window
        self._mutation_window = mutation_window
        self._mutations = mutations
        self._book = book or TermsBook()
        self._default_book = self._book
        self._limits: dict[Source, _Limits] = {source: {} for source in Source}
        self._brokers: dict[NodeId, BrokerQuotas] = {}
        self.cluster = self._made(None)
        """The quotas of clients whose limits are of all brokers together."""
        self.costs = DEFAULT_COSTS
        """What requests cost in thread time, estimated."""

    @property
    def brokers(self) -> dict[NodeId, BrokerQuotas]:
        """Each broker's quotas by node id."""
        return self._brokers

    @property
    def default_terms(self) -> Terms:
        """The terms of whom no entity of a policy file has others for."""
        return self._default_book.default

    @property
    def limit_count(self) -> int:
        """How many limits are in force, static ones included."""
        return sum(len(limits) for limits in self._limits.values())

    def broker(self, node_id: NodeId) -> BrokerQuotas:
        """The quotas of a broker, made with all limits at its first mention."""
        quotas = self._brokers.get(node_id)
        if quotas is None:
            quotas = self._brokers[node_id] = self._made(self.cluster)
            for source, limits in self._limits.items():
                for (quota_type, entity), limit in limits.items():
                    quotas.update(quota_type, entity, limit, static=source is Source.STATIC)
        return quotas

    def name_bootstrap(self, node_id: int, placeholder: NodeId = None) -> None:
        """Nothing; the broker behind a bootstrap address turned out to be this node, and keeps its buckets.

        `placeholder` is what it was known by before.
        """
        if placeholder in self._brokers and node_id not in self._brokers:
            self._brokers[node_id] = self._brokers.pop(placeholder)

    def apply(self, entries: Iterable[QuotaEntry], *, static: bool = False) -> int:
        """How many limits differ from before; entities that are not among the entries lose theirs."""
        return self._replace(Source.STATIC if static else Source.STORE, dict(_limits_of(entries)))

    def replace(self, file: PolicyFile) -> int:
        """How many limits differ from before; the terms and limits of this file hold from the next request on."""
        book = self._default_book
        self._book = replace(
            book,
            entities=file.entities,
            internal_principals=book.internal_principals | file.internal_principals,
        )
        for quotas in (self.cluster, *self._brokers.values()):
            quotas.replace_book(self._book)
        rates = {(QuotaType.REQUEST_RATE, entity): rate for entity, rate in file.request_rates.items()}
        return self._replace(Source.FILE, rates)

    def _replace(self, source: Source, wanted: _Limits) -> int:
        """How many limits differ from before; those of one source are these and no others from now on."""
        current = self._limits[source]
        changes = [
            (key, wanted.get(key)) for key in current.keys() | wanted.keys() if current.get(key) != wanted.get(key)
        ]
        for (quota_type, entity), limit in changes:
            for quotas in (self.cluster, *self._brokers.values()):
                quotas.update(quota_type, entity, limit, static=source is Source.STATIC)
        self._limits[source] = wanted
        return len(changes)

    def expire_idle(self, now_ms: int) -> None:
        """Nothing; buckets without a record for an hour are forgotten."""
        for quotas in (self.cluster, *self._brokers.values()):
            quotas.expire_idle(now_ms)

    def _made(self, cluster: BrokerQuotas | None) -> BrokerQuotas:
        return BrokerQuotas(
            self.window,
            mutation_window=self._mutation_window,
            mutations=self._mutations,
            book=self._book,
            cluster=cluster,
        )


def _limits_of(entries: Iterable[QuotaEntry]) -> Iterable[tuple[tuple[QuotaType, Entity], float]]:
    """The limits among some entries that the daemon enforces; entities of addresses have none."""
    for entry in entries:
        if entry.entity.user is ABSENT and entry.entity.client_id is ABSENT:
            continue
        for quota_type in ENFORCED:
            limit = entry.quotas.get(quota_type.key.name)
            if limit is not None:
                yield (quota_type, entry.entity), limit
