"""The stored quotas, and those that a client really gets by Kafka's resolution over all of them.

The cluster of a store adds the number of its brokers, with the total of a limit per broker (the most common misreading
of a quota), whether a callback replaces Kafka's resolution, and whether brokers are too old for a stored key.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Final

from kafka_quotas import stores
from kafka_quotas.core.described import Described, Sentences, StoreAddress
from kafka_quotas.core.errors import StoreRefusedError, UsageError
from kafka_quotas.core.model.entity import ABSENT, EVERYTHING, Entity, QuotaFilter
from kafka_quotas.core.model.quota_key import (
    CONTROLLER_MUTATION_RATE,
    REQUEST_PERCENTAGE,
    QuotaKey,
    is_threshold_entity,
    no_place_for,
)
from kafka_quotas.core.resolution.effective import (
    ANONYMOUS,
    EffectiveQuota,
    EffectiveQuotas,
    QuotaClient,
    clients_of_store,
    outcomes_of_user,
)
from kafka_quotas.core.resolution.quota_resolver import is_address
from kafka_quotas.core.resolution.usage import Usage

if TYPE_CHECKING:
    from kafka_quotas.core.groups.group import Group, GroupMember, GroupTree
    from kafka_quotas.core.groups.membership import Membership


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """The number of brokers of a cluster."""

    brokers: int
    topic: str | None = None
    leading_brokers: int | None = None
    """How many of them lead a partition of the topic, None where no topic was named."""

    def total(self, key: QuotaKey, limit: float | None) -> float | None:
        """Return the most that all brokers together let through, in the unit of the key, None for other keys."""
        return None if limit is None or not multiplies(key, limit) else limit * self.brokers

    def topic_total(self, key: QuotaKey, limit: float | None) -> float | None:
        """Return the most that the leaders of the topic together let through, None for other keys."""
        if limit is None or self.leading_brokers is None or not multiplies(key, limit) or key.for_ip:
            return None
        return limit * self.leading_brokers


def multiplies(key: QuotaKey, limit: float) -> bool:
    """Return whether a limit adds up over brokers, as mutations at one controller and shares don't."""
    return key not in (CONTROLLER_MUTATION_RATE, REQUEST_PERCENTAGE) and limit < key.unlimited


_CALLBACK = "client.quota.callback.class"


def look_at_cluster(
    store: stores.Store, *, brokers: int | None = None, topic: str | None = None
) -> tuple[ClusterView | None, tuple[str, ...]]:
    """Return the size of the cluster and warnings about its brokers.

    The size is `brokers`, or the number of brokers of a Kafka store, None if neither is known.
    """
    if store.kind is not stores.StoreKind.KAFKA:
        if topic is not None:
            raise UsageError(
                "--topic needs a Kafka store", hint="only brokers know who leads a topic: --bootstrap-server HOST:PORT"
            )
        return (None if brokers is None else ClusterView(brokers=brokers)), ()
    assert isinstance(store, stores.KafkaStore)  # which its kind says without loading it
    cluster = store.cluster
    leading = None if topic is None else len(set(cluster.leaders(topic).values()))
    view = ClusterView(brokers=brokers or len(cluster.node_ids()), topic=topic, leading_brokers=leading)
    return view, _callback_warnings(cluster)


def _callback_warnings(cluster: "stores.ClusterClient") -> tuple[str, ...]:
    try:
        settings = cluster.broker_settings([_CALLBACK])
    except StoreRefusedError as error:
        return (_NOT_KNOWN.format(reason=error.message),)
    brokers_of: dict[str, list[str]] = {}
    for node_id, properties in settings.answers.items():
        if _CALLBACK in properties:
            brokers_of.setdefault(properties[_CALLBACK], []).append(str(node_id))
    found = tuple(
        f"{_CALLBACK}={name} on broker {', '.join(nodes)} replaces all of this: what it decides is not shown here"
        for name, nodes in sorted(brokers_of.items())
    )
    return found if settings.missing is None else (*found, _NOT_KNOWN.format(reason=settings.missing))


_NOT_KNOWN = f"it is unknown whether every broker is without {_CALLBACK}, which would replace all of this: {{reason}}"


def describe(store: stores.Store, *, quota_filter: QuotaFilter) -> list[stores.QuotaEntry]:
    """Return the matching entries, sorted by entity, possibly none."""
    for component in quota_filter.components:
        entity = Entity.from_pairs([(component.entity_type, component.name)])
        if is_threshold_entity(entity) and not store.kind.holds_thresholds:
            raise no_place_for(entity)
    return store.describe(quota_filter)


NEEDS_ADDRESS: Final = (
    "some groups go by listener or address: --ip names the client's address; its listener is not known here"
)
_ANONYMOUS = f"no user was given: showing {ANONYMOUS}, the user of unauthenticated connections"
_FRESH = "true for a freshly started broker; after quotas were removed, a running one may group clients differently"
_NO_ADDRESS = "{ip} is not an address: showing what is stored under that very name, as names are not resolved here"
_HOST_NAMES = "quotas are stored for host names ({names}): a broker resolves them, this answer does not"
_WILDCARDS = "client-ids that are in groups by a prefix or pattern are not listed: name one with --client"


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveResult:
    """The effective quotas of each client, and behind them the limits and guaranteed rates of its groups."""

    DOCUMENT: ClassVar = "store=store_url cluster warnings notes"
    store_url: StoreAddress
    outcomes: tuple[tuple[QuotaClient, tuple[EffectiveQuota, ...]], ...]
    cluster: Annotated[ClusterView | None, Described(text="null without --brokers or a cluster")]
    warnings: Sentences
    """Why the whole answer may not hold."""
    notes: Sentences
    usages: tuple[Usage, ...] | None = None
    groups: Mapping[QuotaClient, str | None] = field(default_factory=dict)
    """The innermost group of each client, empty where no groups are known."""


def effective(
    store: stores.Store,
    *,
    clients: Sequence[QuotaClient],
    cluster: ClusterView | None = None,
    warnings: Sequence[str] = (),
    usages: tuple[Usage, ...] | None = None,
    policy: Path | None = None,
) -> EffectiveResult:
    """Return the effective quotas of each client, or of every client that the store or a group names.

    A user without client-id stands for every distinct kind of its clients. Groups are those of the store and of a
    policy file. The cluster, the warnings and the usages are those of the result.

    Raises:
        UsageError: The policy file can't be read, or its groups don't fit together.
    """
    entries = store.describe(EVERYTHING)
    stored, named, membership = store.groups(), [entry.entity for entry in entries], None
    if policy is not None or stored:
        # Most clients are in no group, and nothing of groups is loaded for them.
        from kafka_quotas.core.groups.membership import Membership  # noqa: PLC0415

        tree = known_groups(stored, policy)
        membership = Membership(tree) if tree else None
        names = ((member.user, member.client_id) for member in _members(tree) if member.user or member.client_id)
        named += [Entity.of(user=user or ABSENT, client_id=client_id or ABSENT) for user, client_id in names]
    resolver = EffectiveQuotas(entries, static=store.kind.is_static)
    asked = _spelled_out(clients, named)
    outcomes, groups = [(client, _quotas(resolver, client)) for client in asked], dict[QuotaClient, str | None]()
    if membership is not None:
        from kafka_quotas.core.groups.membership import groups_of  # noqa: PLC0415 - as above

        around = {client: groups_of(membership, client) for client in asked}
        outcomes = [(client, around[client].beside(own)) for client, own in outcomes]
        groups = {client: each.group for client, each in around.items()}
    return EffectiveResult(
        store_url=store.url,
        outcomes=tuple(outcomes),
        cluster=cluster,
        warnings=(*warnings, *_name_warnings(asked, entries)),
        notes=tuple(_notes(clients, membership)),
        usages=usages,
        groups=groups,
    )


def known_groups(stored: "Iterable[Group]", policy: Path | None) -> "GroupTree":
    """Return the groups of a store and of a daemon's policy file, if there is one.

    Raises:
        UsageError: The file can't be read, or its groups don't fit together.
    """
    from kafka_quotas.core.groups.group import GroupTree  # noqa: PLC0415 - few stores have groups

    return GroupTree((*policy_groups(policy), *stored))


def policy_groups(policy: Path | None) -> "tuple[Group, ...]":
    """Return those of a policy file alone."""
    if policy is None:
        return ()
    from kafka_quotas.enforcement import read_groups  # noqa: PLC0415 - most commands know no policy file

    return read_groups(policy)


def _members(tree: "GroupTree") -> "Iterator[GroupMember]":
    return (member for group in tree.groups for member in group.members)


def _spelled_out(clients: Sequence[QuotaClient], entities: Sequence[Entity]) -> list[QuotaClient]:
    """Return the clients to resolve, with a user alone replaced by the distinct kinds of its clients."""
    if not clients:
        return clients_of_store(entities)
    asked: list[QuotaClient] = []
    for client in clients:
        if isinstance(client.user, str) and client.client_id is None:
            asked += outcomes_of_user(client.user, entities)
            if client.ip is not None:
                asked.append(QuotaClient(ip=client.ip))
        else:
            asked.append(client)
    return asked


def _quotas(resolver: EffectiveQuotas, client: QuotaClient) -> tuple[EffectiveQuota, ...]:
    found: tuple[EffectiveQuota, ...] = ()
    if client.user is not None or client.client_id is not None:
        found = resolver.for_client(ANONYMOUS if client.user is None else client.user, client.client_id or "")
    return found if client.ip is None else (*found, resolver.for_ip(client.ip))


def _name_warnings(asked: Sequence[QuotaClient], entries: Sequence[stores.QuotaEntry]) -> Iterator[str]:
    """Yield what remains unknown about addresses without a resolver of host names."""
    addresses = [client.ip for client in asked if isinstance(client.ip, str)]
    for ip in dict.fromkeys(addresses):
        if not is_address(ip):
            yield _NO_ADDRESS.format(ip=ip)
    stored = [entry.entity.ip for entry in entries if isinstance(entry.entity.ip, str)]
    names = sorted(ip for ip in stored if not is_address(ip))
    if names and any(is_address(ip) for ip in addresses):
        yield _HOST_NAMES.format(names=", ".join(names))


def _notes(clients: Sequence[QuotaClient], groups: "Membership | None") -> list[str]:
    notes = [_FRESH]
    if any(client.user is None and client.client_id is not None for client in clients):
        notes.append(_ANONYMOUS)
    if groups is None:
        return notes
    is_of_many = not clients or any(client.user is not None and client.client_id is None for client in clients)
    client_ids = (member.names("client_id") for member in _members(groups.tree))
    if is_of_many and any(each is not None and not each.is_exact for each in client_ids):
        notes.append(_WILDCARDS)
    if groups.has_origins and (not clients or any(client.ip is None for client in clients)):
        notes.append(NEEDS_ADDRESS)
    return notes
