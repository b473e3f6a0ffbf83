"""Where declared groups go, and the plan of what changes there: a store that holds groups, or a daemon's policy file.

Contract: the groups of a place change all together or not at all, and only if nobody else has changed them since they
were read. A store of Kafka's own configuration refuses groups, unless a policy file is named for them.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, ClassVar

from kafka_quotas.core.changes.plan import KeptGroups, StalePlanError
from kafka_quotas.core.described import Described
from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.core.formats.documents import read_document
from kafka_quotas.core.groups.group import Group, GroupTree
from kafka_quotas.core.groups.group_changes import (
    NOBODY,
    GroupChange,
    Moved,
    group_changes,
    group_document,
    groups_from,
    groups_text,
    merged_groups,
    moved_clients,
)
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_key import no_place_for
from kafka_quotas.core.quota_files.writer import with_groups
from kafka_quotas.stores import Store, replace_text


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """The groups of a place before and after, and whom the change concerns."""

    DOCUMENT: ClassVar = "place changes moved=moved.clients names_left_out=moved.left_out left_alone=unmanaged"
    place: Annotated[str, Described(text="the store or file that has the groups")] = ""
    before: tuple[Group, ...] = ()
    after: tuple[Group, ...] = ()
    moved: Moved = NOBODY
    unmanaged: Annotated[tuple[str, ...], Described(text="not declared, or left out by --selector; they stay")] = ()

    changes: tuple[GroupChange, ...] = field(init=False)
    """What has to change, computed once: of a thousand groups it takes a quarter of a second."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "changes", group_changes(self.before, self.after))

    @property
    def changed(self) -> tuple[str, ...]:
        """The names of the groups that change."""
        return tuple(dict.fromkeys(change.group for change in self.changes))

    @property
    def shown(self) -> "Annotated[GroupPlan | None, Described(text='null without groups')]":
        """The plan as documents have it."""
        return self if self.before or self.after else None

    def with_moved(self, entities: Iterable[Entity]) -> "GroupPlan":
        """Return the plan with the clients that it moves, among those that entities and members name."""
        return replace(self, moved=moved_clients(self.before, self.after, entities)) if self.changes else self

    def undo(self) -> KeptGroups | None:
        """Return the way back, None if nothing changes."""
        return replace(self, before=self.after, after=self.before).kept()

    def kept(self) -> KeptGroups | None:
        """Return it as a plan file has it, None if nothing changes."""
        after = [group_document(group) for group in self.after]
        return KeptGroups(place=self.place, before=_digest(self.before), after=after) if self.changes else None


class GroupPlace:
    """The place that holds groups: a policy file if one is named, otherwise the store."""

    def __init__(self, store: Store, policy: Path | None, known: tuple[Group, ...] | None = None) -> None:
        """Take the place, and the groups of a store that was read already."""
        self.name = store.url if policy is None else str(policy)
        self._known = known
        self._store = store
        self._policy = policy

    def read(self) -> tuple[Group, ...]:
        """Return the groups."""
        if self._policy is None:
            return self._store.groups() if self._known is None else self._known
        from kafka_quotas.enforcement import read_policy_file  # noqa: PLC0415 - only --policy needs it

        return read_policy_file(self._policy).groups.groups

    def plan(
        self,
        declared: Sequence[Group],
        *,
        prune: bool,
        prune_limit: float,
        owns: Callable[[Entity], bool],
    ) -> GroupPlan:
        """Return what has to change for the groups to be as declared."""
        owned = [group for group in declared if owns(group.entity)]
        if owned and self._policy is None and not self._store.kind.holds_groups:
            raise no_place_for(owned[0].entity)
        before = self.read()
        merged = merged_groups(before, owned, prune=lambda group: prune and owns(group.entity))
        try:
            after = GroupTree(merged).groups
        except UsageError as error:
            raise UsageError(f"with the groups that stay in {self.name}: {error.message}", hint=error.hint) from error
        gone = {group.name for group in before} - {group.name for group in after}
        refuse_removal(len(gone), sum(owns(group.entity) for group in before), "groups", limit_percent=prune_limit)
        names = {group.name for group in owned}
        left = dict.fromkeys(group.name for group in (*after, *declared) if group.name not in names)
        return GroupPlan(place=self.name, before=before, after=after, unmanaged=tuple(left))

    def left_of(self, kept: KeptGroups | None, *, force: bool = False) -> GroupPlan:
        """Return what is left to do of the groups that a plan has, with `force` whatever has changed."""
        if kept is None:
            return GroupPlan()
        if kept.place != self.name:
            raise UsageError(
                f"the plan has groups for {kept.place}", hint=f"name it as diff did: --policy {kept.place}"
            )
        before, after = self.read(), groups_from(list(kept.after), "the plan")
        if before != after and not force and _digest(before) != kept.before:
            raise StalePlanError("the groups have changed since the plan was made", hint="make a new plan")
        return GroupPlan(place=self.name, before=before, after=after)

    def put(self, plan: GroupPlan) -> None:
        """Replace the groups, in a policy file its `[[group]]` sections, or those of a table in it."""
        policy = self._policy
        if policy is None:
            self._store.replace_groups(plan.after, expected=plan.before)
            return
        name, _, table = policy.name.partition("#")
        file = policy.with_name(name)
        text = read_document(file)
        if self.read() != plan.before or read_document(file) != text:
            raise KafkaQuotasError(f"somebody else has changed {policy}, nothing was changed", hint="run it again")
        try:
            replace_text(file, [with_groups(text.decode(), plan.after, table)])
        except UsageError as error:
            raise UsageError(f"{policy}: {error.message}", hint=error.hint) from error
        except OSError as error:
            raise KafkaQuotasError(f"can't write {policy}: {error.strerror or error}") from error


def refuse_removal(count: int, total: int, what: str, *, limit_percent: float) -> None:
    """Raise a `KafkaQuotasError` for the removal of more than a share of what is owned."""
    if count * 100 > total * limit_percent:
        raise KafkaQuotasError(
            f"this would remove {count} of {total} {what}, more than {limit_percent:g} %",
            hint="if that is intended, raise --prune-limit; a file or folder may be missing otherwise",
        )


def _digest(groups: Iterable[Group]) -> str:
    from hashlib import sha256  # noqa: PLC0415 - loads OpenSSL, and few plans have groups

    return f"sha256:{sha256(groups_text(groups).encode()).hexdigest()}"
