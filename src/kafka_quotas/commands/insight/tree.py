"""The quotas of a store as the tree that Kafka looks through, one per quota key."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar

from kafka_quotas.commands.quotas.quota_status import StoredQuotaStatus, client_quota_statuses, quota_statuses
from kafka_quotas.core.described import StoreAddress
from kafka_quotas.core.model.entity import ABSENT, CLIENT_ID, IP, USER, Entity
from kafka_quotas.core.model.quota_filter import EVERYTHING
from kafka_quotas.stores.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """An entity's part of the tree."""

    entity_type: str
    name: str | None
    quota: StoredQuotaStatus | None
    """Its quota, None for an entity that only holds the branches below it."""
    below: tuple["Branch", ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyTree:
    """The tree of one quota key, in the order in which Kafka looks."""

    key: str
    branches: tuple[Branch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeResult:
    """The trees, and the same quotas as a list."""

    DOCUMENT: ClassVar = "store=store_url quotas"
    store_url: StoreAddress
    about_client: bool
    """Whether they hold only the quotas that fit one client."""
    trees: tuple[KeyTree, ...]
    quotas: tuple[StoredQuotaStatus, ...]


def tree(
    store: Store,
    *,
    key: str | None = None,
    user: str | None = None,
    client_id: str | None = None,
    ip: str | None = None,
) -> TreeResult:
    """Return the stored quotas of one key or all, or those that fit one client, each with its status."""
    entries = store.describe(EVERYTHING)
    static = store.kind.is_static
    about_client = not (user is None and client_id is None and ip is None)
    found = (
        client_quota_statuses(entries, user=user, client_id=client_id, ip=ip, static=static)
        if about_client
        else quota_statuses(entries, static=static)
    )
    kept = tuple(quota for quota in found if key is None or quota.key == key)
    return TreeResult(store_url=store.url, about_client=about_client, trees=tuple(_trees(kept)), quotas=kept)


def _trees(found: Sequence[StoredQuotaStatus]) -> Iterator[KeyTree]:
    for key, group in groupby(found, key=lambda quota: quota.key):
        of_key = list(group)
        branches = [*_user_branches(of_key)]
        for entity_type in (CLIENT_ID, IP):
            alone = [quota for quota in of_key if _only_part(quota.entity) == entity_type]
            branches += [_leaf(entity_type, quota) for quota in _named_first(alone, entity_type)]
        yield KeyTree(key=key, branches=tuple(branches))


def _user_branches(found: Sequence[StoredQuotaStatus]) -> Iterator[Branch]:
    """Yield one branch per user with the user's clients below it, the default last."""
    of_users: dict[str | None, list[StoredQuotaStatus]] = {}
    for quota in _named_first([quota for quota in found if quota.entity.user is not ABSENT], USER):
        name = quota.entity.user
        of_users.setdefault(name if isinstance(name, str) else None, []).append(quota)
    for user, of_user in of_users.items():
        clients = [quota for quota in of_user if quota.entity.client_id is not ABSENT]
        own = next((quota for quota in of_user if quota.entity.client_id is ABSENT), None)
        below = tuple(_leaf(CLIENT_ID, quota) for quota in _named_first(clients, CLIENT_ID))
        yield Branch(entity_type=USER, name=user, quota=own, below=below)


def _named_first(found: Sequence[StoredQuotaStatus], entity_type: str) -> list[StoredQuotaStatus]:
    """Return the quotas sorted by the name under a type, its default last, as Kafka looks."""

    def order(quota: StoredQuotaStatus) -> tuple[bool, str]:
        name = quota.entity.part(entity_type)
        return (name is None, name if isinstance(name, str) else "")

    return sorted(found, key=order)


def _only_part(entity: Entity) -> str | None:
    return entity.parts[0][0] if len(entity.parts) == 1 else None


def _leaf(entity_type: str, quota: StoredQuotaStatus) -> Branch:
    name = quota.entity.part(entity_type)
    return Branch(entity_type=entity_type, name=name if isinstance(name, str) else None, quota=quota)
