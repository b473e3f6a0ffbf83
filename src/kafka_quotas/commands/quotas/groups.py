"""The groups that a command knows of, and what is odd about them.

Groups are the daemon's own and no quotas of Kafka: they come from its policy file, and from stores that can hold them.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from kafka_quotas.commands.quotas.quota_checks import Finding, found
from kafka_quotas.core.groups.group import Group, GroupMember, GroupTree, group_problems
from kafka_quotas.core.groups.membership import fits_names
from kafka_quotas.core.model.entity import ABSENT, Entity
from kafka_quotas.core.model.quota_key import QUOTA_KEYS
from kafka_quotas.core.model.value_format import format_quota
from kafka_quotas.core.resolution.quota_resolver import GROUP_MARKS
from kafka_quotas.core.resolution.usage import Usage
from kafka_quotas.stores import Store

NEEDS_ADDRESS: Final = (
    "some groups go by listener or address: --ip names the client's address; its listener is not known here"
)


def known_groups(store: Store, policy: Path | None) -> GroupTree:
    """Return the groups of a store and of a policy file, if there is one.

    Raises:
        UsageError: The file can't be read, or its groups don't fit together.
    """
    return GroupTree(stored_groups(store, policy))


def stored_groups(store: Store, policy: Path | None) -> tuple[Group, ...]:
    """Return the same whether or not they fit together."""
    return (*policy_groups(policy), *store.groups())


def policy_groups(policy: Path | None) -> tuple[Group, ...]:
    """Return the groups of a policy file, whether or not they fit together, none without a file."""
    if policy is None:
        return ()
    from kafka_quotas.enforcement import read_groups  # noqa: PLC0415 - most commands know no policy file

    return read_groups(policy)


def odd_groups(groups: Sequence[Group], clients: Iterable[Entity], *, evidence: str) -> Iterator[Finding]:
    """Yield the findings about groups.

    Args:
        groups: The groups, which may not fit together.
        clients: The clients that are known, by as many of their names.
        evidence: Where these were found.
    """
    conflicts = list(group_problems(groups))
    for problem in conflicts:
        about = Entity.of(group=problem.group)
        yield found("group-conflict", about, problem=problem.message, way_out=problem.hint or "change one of them")
    if conflicts:
        return
    tree = GroupTree(groups)
    for group in tree.groups:
        if not group.members and not any(each.members for each in tree.walk(group.name)):
            yield found("group-empty", group.entity)
        yield from _idle_limits(tree, group)
    yield from _unreachable(tree)
    known = list(clients)
    for group, member in _members(tree):
        if not member.is_of_connections and not any(_fits(member, client) for client in known):
            yield found("member-unseen", group.entity, member=member, evidence=evidence)


def clients_in(usages: Iterable[Usage]) -> Iterator[Entity]:
    """Yield the clients that figures of buckets name, each once."""
    for user, client_id in dict.fromkeys(usage.bucket for usage in usages):
        if user not in GROUP_MARKS:
            yield Entity.of(user=user or ABSENT, client_id=client_id or ABSENT)


def _members(tree: GroupTree) -> Iterator[tuple[Group, GroupMember]]:
    """Yield the members in the order in which they are tried."""
    yield from ((group, member) for group in tree.walk() for member in group.members)


def _fits(member: GroupMember, client: Entity) -> bool:
    """Return whether the names of a client fit a member, whatever its listener and address."""
    user, client_id = (name if isinstance(name, str) else None for name in (client.user, client.client_id))
    return fits_names(member, user, client_id)


def _unreachable(tree: GroupTree) -> Iterator[Finding]:
    """Yield a finding for each member of which an earlier one takes all clients."""
    tried: list[tuple[Group, GroupMember]] = []
    for group, member in _members(tree):
        taken = next((each for each in tried if _takes_all(each[1], member)), None)
        if taken is not None:
            earlier = f"{taken[1]}, a member of {taken[0].entity},"
            yield found("member-unreachable", group.entity, member=member, earlier=earlier)
        tried.append((group, member))


def _takes_all(earlier: GroupMember, member: GroupMember) -> bool:
    """Return whether every client that fits a member fits an earlier one as well, if that is plain to see."""
    if earlier.listener not in (None, member.listener):
        return False
    if earlier.address is not None:
        inner, outer = member.address, earlier.address
        if inner is None or inner.version != outer.version or not inner.subnet_of(outer):  # type: ignore[arg-type]
            return False
    return all(_has_all_names(earlier.ways(part), member.ways(part)) for part in ("user", "client_id"))


_Ways = tuple[str | None, str | None, str | None]
_WILD: Final = "*?"


def _has_all_names(earlier: _Ways, names: _Ways) -> bool:
    exact, prefix, pattern = earlier
    name, start, shape = names
    if earlier in ((None, None, None), names):
        return True
    if exact is not None or names == (None, None, None):
        return False
    if pattern is not None:
        if name is not None:
            return fits_names(GroupMember(user_pattern=pattern), name, None)
        if pattern.rstrip("*") == pattern or any(each in pattern.rstrip("*") for each in _WILD):
            return False  # it has more than a beginning
        prefix = pattern.rstrip("*")
    known = "".join(itertools.takewhile(lambda letter: letter not in _WILD, shape or "")) if shape else name or start
    return known is not None and known.startswith(prefix or "")


def _idle_limits(tree: GroupTree, group: Group) -> Iterator[Finding]:
    """Yield a finding for each limit that the limits of the groups within never reach together."""
    within = tree.within(group.name)
    for key, limit in group.by_key.items():
        inner = [each.by_key.get(key) for each in within]
        total = sum(each for each in inner if each is not None)
        if within and not group.members and None not in inner and total < limit < QUOTA_KEYS[key].unlimited:
            shown = format_quota(key, limit), format_quota(key, total)
            yield found("group-limit-idle", group.entity, key=key, limit=shown[0], sum=shown[1])
