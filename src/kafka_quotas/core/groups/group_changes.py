"""The way from groups in force to declared ones: the list to be in force, what it changes, and for which clients.

Contract: a group is declared as a whole, so a limit or member that its declaration leaves out goes. A group that no
declaration names stays, unless it is pruned. Groups keep their order, which decides who is in which, unless the
declarations have another; a new one comes after the one that is declared before it, the first before the next.

The known clients are those that stored entities and members name: users with any other client-id, client-ids of any
other user, and users together with client-ids if that leads to another group than either alone. A prefix or pattern
stands for one client that fits it. Members by listener or address are left out.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice, product
from typing import Annotated, Any, ClassVar, Final, NamedTuple

from kafka_quotas.core.described import Described, Limit
from kafka_quotas.core.formats.nodes import Node, json_node
from kafka_quotas.core.formats.typed_document import read_record
from kafka_quotas.core.groups.group import PARTS, Group, GroupTree
from kafka_quotas.core.groups.membership import Membership
from kafka_quotas.core.model.entity import CLIENT_ID, USER, Entity
from kafka_quotas.core.model.quota_key import QUOTA_KEYS
from kafka_quotas.core.resolution.effective import OTHER, unused_name

MOST_COMBINATIONS: Final = 10_000
"""The maximum number of combinations of users with client-ids."""
MOST_COMPARISONS: Final = 20_000_000
"""The maximum number of names times prefixes and patterns: some seconds."""


def group_document(group: Group) -> dict[str, Any]:
    """Return a group as the mapping of texts, figures and lists that reads back as the same group."""
    guaranteed = group.guaranteed.by_key
    return {
        "name": group.name,
        **({"members": [member.given for member in group.members]} if group.members else {}),
        **group.by_key,
        **({"guaranteed": guaranteed} if guaranteed else {}),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _GroupList:
    group: tuple[Group, ...]


def groups_text(groups: Iterable[Group]) -> str:
    """Return groups as one line of JSON."""
    return json.dumps([group_document(group) for group in groups], ensure_ascii=False, separators=(",", ":"))


def groups_from(listed: object, source: str) -> tuple[Group, ...]:
    """Return the groups in a list of mappings, or in the JSON text of one.

    Raises:
        UsageError: It is damaged, or the groups don't fit together.
    """
    value = json_node(listed, source).value if isinstance(listed, str) else listed
    return GroupTree(read_record(_GroupList, Node({"group": value}, source)).group).groups


def merged_groups(stored: Sequence[Group], declared: Sequence[Group], *, prune: Callable[[Group], bool]) -> list[Group]:
    """Return the declared groups and those that stay, which are all others except the ones to `prune`."""
    known, names = {group.name for group in stored}, {group.name for group in declared}
    runs: list[list[Group]] = [[]]
    for group in declared:
        if group.name in known:
            runs.append([])
        runs[-1].append(group)
    before, *replacements = runs
    left, after = iter(replacements), list[Group]()
    for group in stored:
        if group.name in names:
            after += [*before, *next(left)]
            before = []
        elif not prune(group):
            after.append(group)
    return after + before


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupChange:
    """A part of a group before and after: a limit, guaranteed rate or member, its place, or all of it."""

    group: Annotated[str, Described(text="its path")]
    key: Annotated[str, Described(text="a quota key, guaranteed.KEY, member, order, or group for all of it")]
    old: float | str | None
    new: float | str | None

    @property
    def entity(self) -> Entity:
        """The group as an entity."""
        return Entity.of(group=self.group)


def group_changes(before: Sequence[Group], after: Sequence[Group]) -> tuple[GroupChange, ...]:
    """Return what differs between two lists of groups, in the order of the second, removed groups last."""
    old = {group.name: group for group in before}
    new = {group.name: group for group in after}
    gone = [group for group in before if group.name not in new]
    changes = [each for group in after for each in _changes(old.get(group.name), group)]
    changes += [GroupChange(group=group.name, key="group", old=group.name, new=None) for group in gone]
    was, now = ([name for name in side if name in old and name in new] for side in (old, new))
    moved = next((name for name, other in zip(now, was, strict=True) if name != other), None)
    if moved is not None:
        places = float(was.index(moved) + 1), float(now.index(moved) + 1)
        changes.append(GroupChange(group=moved, key="order", old=places[0], new=places[1]))
    return tuple(changes)


_RATES: Final = (*QUOTA_KEYS, *(f"guaranteed.{key}" for key in QUOTA_KEYS))


def _changes(before: Group | None, after: Group) -> Iterator[GroupChange]:
    if before is None:
        yield GroupChange(group=after.name, key="group", old=None, new=after.name)
    was, now = {} if before is None else _parts(before), _parts(after)
    for part in dict.fromkeys((*_RATES, *was, *now)):
        if was.get(part) != now.get(part):
            key = part if part in _RATES else "member"
            yield GroupChange(group=after.name, key=key, old=was.get(part), new=now.get(part))


def _parts(group: Group) -> dict[str, float | str]:
    """Return limits, guaranteed rates and members by what differs between two of them."""
    guaranteed = {f"guaranteed.{key}": rate for key, rate in group.guaranteed.by_key.items()}
    return {**group.by_key, **guaranteed, **{f"member {each}": str(each) for each in group.members}}


class LimitOfGroups(NamedTuple):
    """The least limit of a key that a client shares with others, before and after."""

    key: str
    before: Limit
    after: Limit


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedClient:
    """A client that is in another group, or shares other limits, after a change."""

    DOCUMENT: ClassVar = "client before after limits"
    client: Annotated[Mapping[str, str], Described(text="names by entity type, or a prefix or pattern of them")]
    before: Annotated[str | None, Described(text="the group; null for none")]
    after: Annotated[str | None, Described(text="the group; null for none")]
    limits: Annotated[tuple[LimitOfGroups, ...], Described(text="the least limits of its groups that differ")]


class Moved(NamedTuple):
    """The known clients that a change concerns."""

    clients: Annotated[tuple[MovedClient, ...], Described(text="known clients whose group or limits differ")]
    left_out: Annotated[int, Described(text="names and pairs of them that were not looked at")]


NOBODY: Final = Moved((), 0)


def moved_clients(before: Sequence[Group], after: Sequence[Group], entities: Iterable[Entity]) -> Moved:
    """Return the known clients that get into or out of a group, or under another limit of one."""
    sides = Membership(GroupTree(before)), Membership(GroupTree(after))
    # If not all names can be looked up, those of changed groups are.
    same = {*before} & {*after}
    changed_first = sorted([*before, *after], key=same.__contains__)
    members = [member for group in changed_first for member in group.members]
    asked_for = {part: [names for each in members if (names := each.names(part)) is not None] for part in PARTS}
    wildcards = sum(not names.is_exact for part in PARTS for names in asked_for[part])
    entities, most = list(entities), MOST_COMPARISONS // max(1, wildcards)
    users, client_ids = (
        {name: name for entity in entities if isinstance(name := entity.part(kind), str)}
        | {str(names): names.example(OTHER.value) for names in asked_for[part]}
        for kind, part in zip((USER, CLIENT_ID), PARTS, strict=True)
    )
    left_out = sum(max(0, len(names) - most) for names in (users, client_ids))
    users, client_ids = (dict(sorted(islice(names.items(), most))) for names in (users, client_ids))
    other = unused_name({*users.values(), *client_ids.values()})

    @cache
    def both(user: str | None, client_id: str | None) -> list[str | None]:
        names = users.get(user or "", other), client_ids.get(client_id or "", other)
        return [side.group_of(*names) for side in sides]

    count = len(users) * len(client_ids)
    left_out += count if count > MOST_COMBINATIONS else 0
    beside = (None, *(client_ids if count <= MOST_COMBINATIONS else ()))
    moved = []
    for user, client_id in (*product(users, beside), *product((None,), (*client_ids, None))):
        groups = both(user, client_id)
        if None not in (user, client_id) and groups in (both(user, None), both(None, client_id)):
            continue
        was, now = (_least(side.tree, group) for side, group in zip(sides, groups, strict=True))
        limits = [LimitOfGroups(key, was.get(key), now.get(key)) for key in QUOTA_KEYS]
        differ = tuple(limit for limit in limits if limit.before != limit.after)
        if groups[0] != groups[1] or differ:
            named = {kind: name for kind, name in ((USER, user), (CLIENT_ID, client_id)) if name is not None}
            client = named or {USER: OTHER.value}
            moved.append(MovedClient(client=client, before=groups[0], after=groups[1], limits=differ))
    return Moved(tuple(moved), left_out)


def _least(tree: GroupTree, name: str | None) -> dict[str, float]:
    """Return the least limit of each key around the clients of a group."""
    found: dict[str, float] = {}
    for group in tree.chain(name):
        found |= {key: min(limit, found.get(key, limit)) for key, limit in group.by_key.items()}
    return found
