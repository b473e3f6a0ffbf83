"""The groups that a command knows of, and what is odd about them.

Groups are the daemon's own and no quotas of Kafka: they come from its policy file, and from stores that can hold them.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, product, takewhile
from math import prod
from pathlib import Path

from kafka_quotas.commands.quotas.quota_checks import Finding, found
from kafka_quotas.core.groups.group import PARTS, Group, GroupMember, GroupTree, Names, group_problems
from kafka_quotas.core.model.entity import ABSENT, Entity
from kafka_quotas.core.model.quota_key import QUOTA_KEYS
from kafka_quotas.core.model.value_format import format_quota
from kafka_quotas.core.resolution.quota_resolver import GROUP_MARKS
from kafka_quotas.core.resolution.usage import Usage


def known_groups(stored: Iterable[Group], policy: Path | None) -> GroupTree:
    """Return the groups of a store and of a policy file, if there is one.

    Raises:
        UsageError: The file can't be read, or its groups don't fit together.
    """
    return GroupTree((*policy_groups(policy), *stored))


def policy_groups(policy: Path | None) -> tuple[Group, ...]:
    """Return those of a policy file alone."""
    if policy is None:
        return ()
    from kafka_quotas.enforcement import read_groups  # noqa: PLC0415 - most commands know no policy file

    return read_groups(policy)


def odd_groups(groups: Sequence[Group], clients: Iterable[Entity], *, evidence: str) -> Iterator[Finding]:
    """Yield the findings about groups, with the evidence by which clients are known."""
    conflicts = list(group_problems(groups))
    for name, message, hint in conflicts:
        yield found("group-conflict", Entity.of(group=name), problem=message, way_out=hint or "change one of them")
    if conflicts:
        return
    tree = GroupTree(groups)
    for group in tree.groups:
        if not group.members and not any(each.members for each in tree.walk(group.name)):
            yield found("group-empty", group.entity)
        yield from _idle_limits(tree, group)
    yield from _unreachable(tree)
    known = _Names(clients)
    for group, member in _members(tree):
        if not member.is_of_connections and not known.has(member):
            yield found("member-unseen", group.entity, member=member, evidence=evidence)


def clients_in(usages: Iterable[Usage]) -> Iterator[Entity]:
    """Yield the clients that figures of buckets name, each once."""
    for user, client_id in dict.fromkeys(usage.bucket for usage in usages):
        if user not in GROUP_MARKS:
            yield Entity.of(user=user or ABSENT, client_id=client_id or ABSENT)


def _members(tree: GroupTree) -> Iterator[tuple[Group, GroupMember]]:
    """Yield the members in the order in which they are tried."""
    yield from ((group, member) for group in tree.walk() for member in group.members)


class _Names:
    """The names that clients are known by, in which those of a member are looked up."""

    def __init__(self, clients: Iterable[Entity]) -> None:
        named = {(each.user, each.client_id) for each in clients}
        self._pairs = {pair for pair in named if isinstance(pair[0], str) and isinstance(pair[1], str)}
        self._sorted = [sorted({str(pair[at]) for pair in named if isinstance(pair[at], str)}) for at in (0, 1)]

    def has(self, member: GroupMember) -> bool:
        """Return whether a client has the names that a member asks for, whatever its listener and address."""
        found = [self._fitting(at, names) for at, part in enumerate(PARTS) if (names := member.names(part)) is not None]
        return any(found[0]) if len(found) == 1 else any(pair in self._pairs for pair in product(*found))

    def _fitting(self, at: int, asked: Names) -> list[str]:
        names, head = self._sorted[at], asked.head
        near = takewhile(lambda name: name.startswith(head), islice(names, bisect_left(names, head), None))
        return [name for name in near if asked.fits(name)]


def _unreachable(tree: GroupTree) -> Iterator[Finding]:
    """Yield a finding for each member of which an earlier one takes all clients."""
    tried: dict[tuple[str, ...], list[tuple[Group, GroupMember]]] = {}
    for group, member in _members(tree):
        heads = tuple(names.head if (names := member.names(part)) else "" for part in PARTS)
        # Whoever takes all clients of a member asks for a beginning of its names, or for less.
        begun: Iterable[tuple[str, ...]] = product(*([head[:end] for end in range(len(head) + 1)] for head in heads))
        if prod(len(head) + 1 for head in heads) > len(tried):
            begun = list(tried)
        earlier = (each for key in begun for each in tried.get(key, ()) if _takes_all(each[1], member))
        taken = next(earlier, None)
        if taken is not None:
            about = f"{taken[1]}, a member of {taken[0].entity},"
            yield found("member-unreachable", group.entity, member=member, earlier=about)
        tried.setdefault(heads, []).append((group, member))


def _takes_all(earlier: GroupMember, member: GroupMember) -> bool:
    """Return whether every client that fits a member fits an earlier one as well, if that is plain to see."""
    if earlier.listener not in (None, member.listener):
        return False
    if earlier.address is not None:
        inner, outer = member.address, earlier.address
        if inner is None or inner.version != outer.version or not inner.subnet_of(outer):  # type: ignore[arg-type]
            return False
    return all(_has_all_names(earlier.names(part), member.names(part)) for part in PARTS)


def _has_all_names(earlier: Names | None, names: Names | None) -> bool:
    if earlier is None or names is None or earlier == names:
        return earlier in (None, names)
    if names.is_exact:
        return earlier.fits(names.head)
    return set(earlier.parts[1:]) == {"*", ""} and names.head.startswith(earlier.head)


def _idle_limits(tree: GroupTree, group: Group) -> Iterator[Finding]:
    """Yield a finding for each limit that the limits of the groups within never reach together."""
    within = tree.within(group.name)
    for key, limit in group.by_key.items():
        inner = [each.by_key.get(key) for each in within]
        total = sum(each for each in inner if each is not None)
        if within and not group.members and None not in inner and total < limit < QUOTA_KEYS[key].unlimited:
            shown = format_quota(key, limit), format_quota(key, total)
            yield found("group-limit-idle", group.entity, key=key, limit=shown[0], sum=shown[1])
