"""The stored quotas, and those that a client really gets by Kafka's resolution over all of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from kafka_quotas.commands.quotas.cluster import ClusterView
from kafka_quotas.commands.quotas.quota_status import resolver_of
from kafka_quotas.core.described import Described, Sentences, StoreAddress
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_filter import EVERYTHING, QuotaFilter
from kafka_quotas.core.model.threshold import is_threshold_entity, no_place_for
from kafka_quotas.core.resolution.effective import (
    ANONYMOUS,
    EffectiveQuota,
    EffectiveQuotas,
    QuotaClient,
    SyntheticNames,
    clients_of_store,
    outcomes_of_user,
)
from kafka_quotas.core.resolution.quota_resolver import LevelKind, is_address
from kafka_quotas.core.resolution.usage import Usage
from kafka_quotas.stores.store import QuotaEntry, Store


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeResult:
    """The matching entries of a store, sorted by entity."""

    DOCUMENT: ClassVar = "entries"
    store_url: str
    entries: tuple[QuotaEntry, ...]


def describe(store: Store, *, quota_filter: QuotaFilter) -> DescribeResult:
    """Return the entries that match, possibly none.

    Raises:
        InvalidQuotaError: Kafka refuses the filter, or it asks for thresholds in a store without them.
    """
    for component in quota_filter.components:
        entity = Entity.from_pairs([(component.entity_type, component.name)])
        if is_threshold_entity(entity) and not store.kind.holds_thresholds:
            raise no_place_for(entity)
    entries = sorted(store.describe(quota_filter), key=lambda entry: entry.entity.sort_key)
    return DescribeResult(store_url=store.url, entries=tuple(entries))


_ANONYMOUS = f"no user was given: showing {ANONYMOUS}, the user of unauthenticated connections"
_FRESH = "true for a freshly started broker; after quotas were removed, a running one may group clients differently"
_NO_ADDRESS = "{ip} is not an address: showing what is stored under that very name, as names are not resolved here"
_HOST_NAMES = "quotas are stored for host names ({names}): a broker resolves them, this answer does not"
_REMEMBERED = "true for a broker that has also had quotas of these levels: {levels}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOutcome:
    """The effective quotas of one client, by quota key."""

    client: QuotaClient
    quotas: tuple[EffectiveQuota, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveResult:
    """The effective quotas of each client."""

    DOCUMENT: ClassVar = "store=store_url cluster warnings notes"
    store_url: StoreAddress
    outcomes: tuple[ClientOutcome, ...]
    cluster: Annotated[ClusterView | None, Described(text="null without --brokers or a cluster")]
    warnings: Sentences
    """Why the whole answer may not hold."""
    notes: Sentences
    """How to read the answer."""
    usages: tuple[Usage, ...] | None = None
    """The usage at the brokers, None where nobody asked for it."""


def effective(
    store: Store,
    *,
    clients: Sequence[QuotaClient],
    history: Sequence[LevelKind] = (),
    cluster: ClusterView | None = None,
    warnings: Sequence[str] = (),
    usages: tuple[Usage, ...] | None = None,
) -> EffectiveResult:
    """Return the effective quotas of each client, or of every client that the store names.

    A user without client-id stands for every distinct kind of its clients. The cluster, the warnings and the usages are
    those of the result.
    """
    entries = store.describe(EVERYTHING)
    asked = _spelled_out(clients, entries)
    resolver = resolver_of(entries, static=store.kind.is_static, history=history)
    probes = SyntheticNames(entry.entity for entry in entries)
    return EffectiveResult(
        store_url=store.url,
        outcomes=tuple(ClientOutcome(client=client, quotas=_quotas(resolver, probes, client)) for client in asked),
        cluster=cluster,
        warnings=(*warnings, *_name_warnings(asked, entries)),
        notes=tuple(_notes(clients, history)),
        usages=usages,
    )


def _spelled_out(clients: Sequence[QuotaClient], entries: Sequence[QuotaEntry]) -> list[QuotaClient]:
    """Return the clients to resolve, with a user alone replaced by the distinct kinds of its clients."""
    entities = [entry.entity for entry in entries]
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


def _quotas(resolver: EffectiveQuotas, probes: SyntheticNames, client: QuotaClient) -> tuple[EffectiveQuota, ...]:
    found: tuple[EffectiveQuota, ...] = ()
    if client.user is not None or client.client_id is not None:
        user = ANONYMOUS if client.user is None else probes.text(client.user)
        found = resolver.for_client(user, probes.text(client.client_id or ""))
    return found if client.ip is None else (*found, resolver.for_ip(probes.text(client.ip)))


def _name_warnings(asked: Sequence[QuotaClient], entries: Sequence[QuotaEntry]) -> Iterator[str]:
    """Yield what remains unknown about addresses without a resolver of host names."""
    addresses = [client.ip for client in asked if isinstance(client.ip, str)]
    for ip in dict.fromkeys(addresses):
        if not is_address(ip):
            yield _NO_ADDRESS.format(ip=ip)
    stored = [entry.entity.ip for entry in entries if isinstance(entry.entity.ip, str)]
    names = sorted(ip for ip in stored if not is_address(ip))
    if names and any(is_address(ip) for ip in addresses):
        yield _HOST_NAMES.format(names=", ".join(names))


def _notes(clients: Sequence[QuotaClient], history: Sequence[LevelKind]) -> list[str]:
    notes = [_REMEMBERED.format(levels=", ".join(kind.value for kind in history)) if history else _FRESH]
    if any(client.user is None and client.client_id is not None for client in clients):
        notes.append(_ANONYMOUS)
    return notes
