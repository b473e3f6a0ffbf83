"""The quotas in force at all brokers: those of the store, which override static ones, and those of the policy file.

Invariants: a change of the store reaches each bucket before its next use and keeps its history; every broker has the
same limits, whenever it appears, and one resolver per type serves all of them; the cost of a change depends on the
number of changed limits alone.

**Source:** KIP-13 for static quotas, which lie below all others (levels 9 and 10).
"""

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.groups.group import Group, GroupTree
from kafka_quotas.core.groups.membership import ClientGroups, Membership, groups_of
from kafka_quotas.core.model.entity import ABSENT, Entity
from kafka_quotas.core.model.quota_key import ResourceQuota
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.bucket_pool import BucketPool
from kafka_quotas.core.quotas.quota_bucket import QuotaBucket
from kafka_quotas.core.quotas.quota_manager import ClientQuotaManager, QuotaType
from kafka_quotas.core.resolution.effective import EffectiveQuotas, QuotaClient
from kafka_quotas.core.resolution.quota_resolver import Bucket
from kafka_quotas.enforcement.config.address import Address
from kafka_quotas.enforcement.config.client_policy import ClientPolicy, Mode, PolicyFile, PolicyTable
from kafka_quotas.enforcement.config.cost_model_file import DEFAULT_COSTS
from kafka_quotas.enforcement.quotas.broker_quotas import ENFORCED, NO_GROUPS, BrokerQuotas, new_limits
from kafka_quotas.stores.store import QuotaEntry

NodeId: TypeAlias = int | None
"""A broker's node id; None or below 0 for a bootstrap server whose id isn't known yet."""
CLUSTER: Final = "cluster"
"""The broker's name in rows and saved buckets of limits that hold for all brokers together."""

Quotas: TypeAlias = Mapping[QuotaType, float]
NO_QUOTAS: Final[Quotas] = {}
"""The limits of a removed entity."""


def broker_name(broker: NodeId | str) -> str:
    """Return a broker's node id as text, or `bootstrap`, `bootstrap-1` and so on while it isn't known."""
    if broker is None:
        return "bootstrap"
    return f"bootstrap{broker}" if isinstance(broker, int) and broker < 0 else str(broker)


@dataclass(slots=True, kw_only=True, eq=False)
class Route:
    """The route from one listener's port to a broker."""

    node_id: NodeId
    """None or negative for a bootstrap server until its node id is known."""
    port: int
    upstream: Address
    """Address of the broker, which changes when the broker moves."""
    is_located: bool = True
    """Whether `upstream` is the broker's own address, rather than that of a bootstrap server."""
    is_bootstrap: bool = False
    listener: str = ""
    """Name of the listener, which other processes of the daemon have as well."""

    @property
    def is_named(self) -> bool:
        """Whether the broker's node id is known."""
        return self.node_id is not None and self.node_id >= 0

    @property
    def is_known(self) -> bool:
        """Whether its broker is known, so that another process can use it for other connections."""
        return self.is_named and (self.is_bootstrap or self.is_located)


Broker: TypeAlias = NodeId | str
"""A broker's node id, None or below 0 for a bootstrap server's that isn't known yet, or `CLUSTER`."""


class BucketId(NamedTuple):
    """The name of a bucket, by which any process of a daemon finds it, in any life of it.

    A rate of connections and the meter of a topic have one as well, of mode `KAFKA`.
    """

    broker: Broker
    mode: Mode
    quota_type: QuotaType | ResourceQuota
    name: Bucket
    """User and client-id; `RateOf` and its listener or address; the topic and an empty text."""


class QuotaSource(Enum):
    """The source of limits, each of which replaces only its own."""

    STORE = "store"
    STATIC = "static"
    FILE = "policy file"


class QuotaRegistry:
    """The limits in force, and the quotas of each broker."""

    def __init__(
        self,
        window: QuotaWindow,
        *,
        mutation_window: QuotaWindow | None = None,
        policies: PolicyTable | None = None,
        pool: BucketPool | None = None,
    ) -> None:
        self.window = window
        self.pool = BucketPool() if pool is None else pool
        self.mutation_window = mutation_window or window
        self.policies = self._default_policies = policies or PolicyTable()
        self.limits = new_limits()
        """The limits in force by type, which all brokers and modes share."""
        self._stated: dict[QuotaSource, dict[Entity, Quotas]] = {source: {} for source in QuotaSource}
        self.brokers: dict[NodeId, BrokerQuotas] = {}
        self._sources: dict[ClientQuotaManager, tuple[Broker, Mode]] = {}
        self._named: tuple[NodeId, ...] = ()
        self._groups_of: dict[QuotaSource, tuple[Group, ...]] = {QuotaSource.FILE: (), QuotaSource.STORE: ()}
        self.groups = NO_GROUPS
        """The groups of clients in force: those of the policy file, which are tried first, and those of the store."""
        self.cluster = BrokerQuotas(self)
        """The quotas of clients whose limits hold for the whole cluster."""
        self.limit_count = 0
        """The number of limits in force, including static ones."""
        self.costs = DEFAULT_COSTS
        """The cost model that estimates the thread time of requests."""

    @property
    def default_policy(self) -> ClientPolicy:
        """The policy of a client that no entity of the policy file matches."""
        return self._default_policies.default

    def broker(self, node_id: NodeId) -> BrokerQuotas:
        """Return the quotas of a broker, and make them at its first mention."""
        quotas = self.brokers.get(node_id)
        if quotas is None:
            quotas = self.brokers[node_id] = BrokerQuotas(self, cluster=self.cluster)
        return quotas

    def name_bootstrap(self, node_id: int, placeholder: NodeId = None) -> None:
        """Move the quotas and buckets of a placeholder to the node id of its bootstrap server."""
        if placeholder in self.brokers and node_id not in self.brokers:
            self.brokers[node_id] = self.brokers.pop(placeholder)

    def entries(self) -> list[QuotaEntry]:
        """Return the limits in force, those of the store first. An entity may have several entries."""
        return [
            QuotaEntry(entity=entity, quotas={quota_type.key.name: limit for quota_type, limit in quotas.items()})
            for stated in self._stated.values()
            for entity, quotas in stated.items()
        ]

    def resolver(self, others: Iterable[QuotaEntry]) -> EffectiveQuotas:
        """Return the resolution of clients to the limits in force, and of addresses to those in `others`."""
        resolvers = {quota_type.key: limits for quota_type, limits in self.limits.items()}
        return EffectiveQuotas.over(resolvers, others)

    def apply(self, entries: Iterable[QuotaEntry], *, static: bool = False) -> int:
        """Replace all limits of a store, or all static ones, and return how many changed."""
        stated = {entry.entity: quotas for entry in entries if (quotas := quotas_of(entry))}
        return self._replace(_source(static=static), stated)

    def alter(self, stated: Mapping[Entity, Quotas], *, static: bool = False) -> int:
        """Replace the limits of some entities, none for a removed one, and return how many changed."""
        return self._alter(_source(static=static), stated.items())

    def replace(self, file: PolicyFile) -> int:
        """Put a policy file in force from the next request on, and return the number of changed limits."""
        default = self._default_policies
        internal = default.internal_principals | file.internal_principals
        policies = replace(default, entities=file.entities, internal_principals=internal)
        changed = self._replace_groups(QuotaSource.FILE, file.groups.groups, policies)
        rates: dict[Entity, Quotas] = {
            entity: {QuotaType.REQUEST_RATE: rate} for entity, rate in file.request_rates.items()
        }
        return changed + self._replace(QuotaSource.FILE, rates)

    def groups_of(self, client: QuotaClient) -> ClientGroups:
        """Return the groups around a client, none if its policy exempts it from all limits."""
        user, client_id = (name if isinstance(name, str) else "" for name in (client.user, client.client_id))
        exempt = self.policies.policy_of(user, client_id).exempt
        return groups_of(NO_GROUPS if exempt else self.groups, client)

    def replace_groups(self, groups: tuple[Group, ...]) -> int:
        """Put the groups of the store in force and return the number of changed limits and guaranteed rates.

        Raises:
            UsageError: They don't fit together with those of the policy file; everything in force stays so.
        """
        same = groups == self._groups_of[QuotaSource.STORE]
        return 0 if same else self._replace_groups(QuotaSource.STORE, groups, self.policies)

    def with_groups(self, source: QuotaSource, groups: tuple[Group, ...]) -> GroupTree:
        """Return all groups with those of one source replaced, or raise a `UsageError` if they don't fit."""
        found = {**self._groups_of, source: groups}
        try:
            return GroupTree([group for each in found.values() for group in each])
        except UsageError as error:
            message = f"the groups of the {source.value} don't fit the others: {error.message}"
            raise UsageError(message, hint=error.hint) from error

    def _replace_groups(self, source: QuotaSource, groups: tuple[Group, ...], policies: PolicyTable) -> int:
        tree = self.with_groups(source, groups)
        self._groups_of[source], self.policies = groups, policies
        before, after = _group_limits(self.groups.tree), _group_limits(tree)
        changed = [each for each in before.keys() | after.keys() if before.get(each) != after.get(each)]
        for quota_type, bucket in changed:
            self.limits[quota_type].update_group(bucket, after.get((quota_type, bucket)))
        self.limit_count += len(after) - len(before)
        self.groups = Membership(tree) if tree != self.groups.tree else self.groups
        quota_types = {quota_type for quota_type, _ in changed}
        for broker in (self.cluster, *self.brokers.values()):
            if quota_types:
                broker.limits_changed(quota_types)
            broker.policies_changed()
        return len(changed)

    def _replace(self, source: QuotaSource, stated: dict[Entity, Quotas]) -> int:
        gone = [entity for entity in self._stated[source] if entity not in stated]
        return self._alter(source, [*stated.items(), *((entity, NO_QUOTAS) for entity in gone)])

    def _alter(self, source: QuotaSource, stated: Iterable[tuple[Entity, Quotas]]) -> int:
        before, changed = self._stated[source], 0
        quota_types: set[QuotaType] = set()
        for entity, quotas in stated:
            current = before.get(entity, NO_QUOTAS)
            if current == quotas:
                continue
            for quota_type in current.keys() | quotas.keys():
                limit = quotas.get(quota_type)
                if current.get(quota_type) != limit:
                    limits = self.limits[quota_type]
                    (limits.update_static if source is QuotaSource.STATIC else limits.update)(entity, limit)
                    quota_types.add(quota_type)
                    changed += 1
            self.limit_count += len(quotas) - len(current)
            if quotas:
                before[entity] = quotas
            else:
                del before[entity]
        if quota_types:
            for broker in (self.cluster, *self.brokers.values()):
                broker.limits_changed(quota_types)
        return changed

    def id_of(self, bucket: QuotaBucket) -> BucketId | None:
        """Return the id of a bucket, None if its manager is no broker's any more."""
        manager = bucket.owner
        brokers = tuple(self.brokers)
        if manager not in self._sources or brokers != self._named:  # a bootstrap server may have its node id now
            self._named = brokers
            owners = ((CLUSTER, self.cluster), *self.brokers.items())
            self._sources = {each: (name, mode) for name, quotas in owners for mode, each in quotas.managers()}
        source = self._sources.get(manager)
        return None if source is None else BucketId(*source, manager.quota_type, bucket.name)

    def manager(self, of: BucketId) -> ClientQuotaManager:
        """Return the manager of a client's bucket."""
        assert isinstance(of.quota_type, QuotaType)
        quotas = self.cluster if isinstance(of.broker, str) else self.broker(of.broker)
        return quotas.manager(of.quota_type, of.mode)

    def expiry(self, now_ms: int) -> Generator[None, None, None]:
        """Drop the buckets without a record for an hour, and yield after each slice of them."""
        for _ in self.pool.expire_idle(now_ms):
            yield
        for quotas in (self.cluster, *self.brokers.values()):
            quotas.drop_clients()


def _group_limits(tree: GroupTree) -> dict[tuple[QuotaType, Bucket], float]:
    return {
        (_ENFORCED_KEYS[bound.key], bound.bucket): bound.rate for bound in tree.bounds() if bound.key in _ENFORCED_KEYS
    }


def quotas_of(entry: QuotaEntry) -> Quotas:
    """Return the limits of an entry that the daemon enforces, none for an address and its like."""
    entity, quotas = entry.entity, entry.quotas
    if entity.user is ABSENT and entity.client_id is ABSENT:
        return NO_QUOTAS
    return {kind: limit for key, kind in _ENFORCED_KEYS.items() if (limit := quotas.get(key)) is not None}


_ENFORCED_KEYS: Final = {quota_type.key.name: quota_type for quota_type in ENFORCED}


def _source(*, static: bool) -> QuotaSource:
    return QuotaSource.STATIC if static else QuotaSource.STORE
