"""Where declared groups go, and the plan of what changes there: a store that holds groups, or a daemon's policy file.

Contract: the groups of a place change all together or not at all, and only if nobody else has changed them since they
were read. A store of Kafka's own configuration refuses groups, unless a policy file is named for them.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar

from kafka_quotas.core.changes.plan import KeptGroups, StalePlanError
from kafka_quotas.core.described import Described
from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.core.formats.documents import read_document
from kafka_quotas.core.groups.group import Group, GroupTree
from kafka_quotas.core.groups.group_changes import (
    GroupChange,
    MovedClient,
    group_changes,
    group_document,
    groups_from,
    groups_text,
    merged_groups,
    moved_clients,
)
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_key import no_place_for
from kafka_quotas.core.quota_files.policy_sections import with_groups
from kafka_quotas.stores import Store, replace_text


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlace:
    """A place that holds groups."""

    name: str
    """The address of the store, or the path of the file."""
    refuses: bool
    """Whether it can't hold groups."""
    read: Callable[[], tuple[Group, ...]]
    put: Callable[[Sequence[Group], Sequence[Group]], None]
    """Replaces the groups, given the new ones and those that the caller found."""


def place_of_groups(store: Store, policy: Path | None) -> GroupPlace:
    """Return the place of groups: a policy file if one is named, otherwise the store."""
    if policy is not None:
        return GroupPlace(name=str(policy), refuses=False, read=partial(_read, policy), put=partial(_put, policy))
    return GroupPlace(
        name=store.url,
        refuses=not store.kind.holds_groups,
        read=store.groups,
        put=lambda groups, expected: store.replace_groups(groups, expected=expected),
    )


def _read(policy: Path) -> tuple[Group, ...]:
    from kafka_quotas.enforcement import read_policy_file  # noqa: PLC0415 - only --policy needs it

    return read_policy_file(policy).groups.groups


def _put(policy: Path, groups: Sequence[Group], expected: Sequence[Group]) -> None:
    """Replace the `[[group]]` sections of a policy file, or of a table in the daemon's configuration."""
    name, _, table = policy.name.partition("#")
    file = policy.with_name(name)
    text = read_document(file)
    if _read(policy) != tuple(expected) or read_document(file) != text:
        raise KafkaQuotasError(f"somebody else has changed {policy}, nothing was changed", hint="run it again")
    try:
        replace_text(file, [with_groups(text.decode(), groups, table)])
    except UsageError as error:
        raise UsageError(f"{policy}: {error.message}", hint=error.hint) from error
    except OSError as error:
        raise KafkaQuotasError(f"can't write {policy}: {error.strerror or error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """The groups of a place before and after, what that changes, and whom it concerns."""

    DOCUMENT: ClassVar = "place changes moved names_left_out left_alone=unmanaged"
    place: Annotated[str, Described(text="the store or file that has the groups")]
    before: tuple[Group, ...]
    after: tuple[Group, ...]
    changes: tuple[GroupChange, ...]
    moved: Annotated[tuple[MovedClient, ...], Described(text="known clients whose group or limits differ")] = ()
    names_left_out: Annotated[int, Described(text="names and pairs of them that were not looked at")] = 0
    unmanaged: Annotated[tuple[str, ...], Described(text="not declared, or left out by --selector; they stay")] = ()

    @property
    def changed(self) -> tuple[str, ...]:
        """The names of the groups that change."""
        return tuple(dict.fromkeys(change.group for change in self.changes))

    def with_moved(self, entities: Iterable[Entity]) -> "GroupPlan":
        """Return the plan with the clients that it moves, among those that entities and members name."""
        if not self.changes:
            return self
        found = moved_clients(self.before, self.after, entities)
        return replace(self, moved=found.clients, names_left_out=found.left_out)

    def kept(self) -> KeptGroups | None:
        """Return it as a plan file has it, None if nothing changes."""
        after = [group_document(group) for group in self.after]
        return KeptGroups(place=self.place, before=_digest(self.before), after=after) if self.changes else None


def plan_groups(
    place: GroupPlace, declared: Sequence[Group], *, prune: bool, prune_limit: float, owns: Callable[[Entity], bool]
) -> GroupPlan | None:
    """Return what has to change for the groups to be as declared, None if there are none at all."""
    owned = [group for group in declared if owns(group.entity)]
    if place.refuses and owned:
        raise no_place_for(owned[0].entity)
    before = place.read()
    if not before and not owned:
        return None
    merged = merged_groups(before, owned, prune=lambda name: prune and owns(Entity.of(group=name)))
    try:
        after = GroupTree(merged).groups
    except UsageError as error:
        raise UsageError(f"with the groups that stay in {place.name}: {error.message}", hint=error.hint) from error
    total, names = sum(owns(group.entity) for group in before), {group.name for group in owned}
    gone = len({group.name for group in before} - {group.name for group in after})
    if gone * 100 > total * prune_limit:
        raise KafkaQuotasError(
            f"this would remove {gone} of {total} groups, more than {prune_limit:g} %",
            hint="if that is intended, raise --prune-limit; a file or folder may be missing otherwise",
        )
    left = [group.name for group in after if group.name not in names]
    left += [group.name for group in declared if not owns(group.entity) and group.name not in left]
    changes = group_changes(before, after)
    return GroupPlan(place=place.name, before=before, after=after, changes=changes, unmanaged=tuple(left))


def kept_group_plan(place: GroupPlace, kept: KeptGroups | None) -> GroupPlan | None:
    """Return what is left to do of the groups that a plan file has."""
    if kept is None:
        return None
    if kept.place != place.name:
        raise UsageError(f"the plan has groups for {kept.place}", hint=f"name it as diff did: --policy {kept.place}")
    before, after = place.read(), groups_from(list(kept.after), "the plan")
    if before != after and _digest(before) != kept.before:
        raise StalePlanError("the groups have changed since the plan was made", hint="make a new plan")
    return GroupPlan(place=place.name, before=before, after=after, changes=group_changes(before, after))


def _digest(groups: Iterable[Group]) -> str:
    from hashlib import sha256  # noqa: PLC0415 - loads OpenSSL, and few plans have groups

    return f"sha256:{sha256(groups_text(groups).encode()).hexdigest()}"
