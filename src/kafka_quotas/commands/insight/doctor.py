"""Odd findings in a store, in its groups, and in its cluster as far as quotas depend on it."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product, takewhile
from math import prod
from pathlib import Path
from typing import ClassVar

from kafka_quotas import stores
from kafka_quotas.commands.insight.usage import UsageReading
from kafka_quotas.commands.quotas.describe import policy_groups
from kafka_quotas.commands.quotas.quota_checks import SEVERITIES, Finding, Severity, found, odd_entries
from kafka_quotas.core.described import Sentences, StoreAddress
from kafka_quotas.core.groups.group import PARTS, Group, GroupMember, GroupTree, Names, group_problems
from kafka_quotas.core.model.entity import ABSENT, EVERYTHING, Entity
from kafka_quotas.core.model.quota_key import NEW_KEYS, QUOTA_KEYS
from kafka_quotas.core.model.value_format import format_quota
from kafka_quotas.core.quota_files.declarations import Declarations
from kafka_quotas.core.resolution.quota_resolver import GROUP_MARKS
from kafka_quotas.core.resolution.usage import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorResult:
    """The findings about a store."""

    DOCUMENT: ClassVar = "store=store_url entities=entries not_looked_at findings"
    store_url: StoreAddress
    entries: int
    findings: tuple[Finding, ...]
    not_looked_at: Sentences

    @property
    def has_errors(self) -> bool:
        """Whether anything is an error."""
        return any(finding.severity is Severity.ERROR for finding in self.findings)


def doctor(store: stores.Store, *, policy: Path | None = None, reading: UsageReading | None = None) -> DoctorResult:
    """Return the findings about all stored quotas and groups, and about the store's cluster if any."""
    info = store.cluster_info()
    entries = info.readable if info.unreadable else store.describe(EVERYTHING)
    findings = [
        *odd_entries(entries, static=store.kind.is_static, threads=min(info.threads.values(), default=None)),
        *odd_cluster(info, entries),
        *_findings_of_groups((*policy_groups(policy), *store.groups()), entries, store.url, reading),
    ]
    return _result(store.url, entries, findings, info.unknown)


def _findings_of_groups(
    groups: Sequence[Group], entries: Sequence[stores.QuotaEntry], place: str, reading: UsageReading | None
) -> Iterator[Finding]:
    evidence, clients = place, [entry.entity for entry in entries]
    if reading is not None:
        evidence, clients = f"{place} and the figures of {reading.origin}", [*clients, *clients_in(reading.usages)]
    yield from odd_groups(groups, clients, evidence=evidence)


def doctor_of_files(
    paths: Sequence[str], declared: Declarations, *, policy: Path | None = None, reading: UsageReading | None = None
) -> DoctorResult:
    """Return the findings about the quotas that files declare, with their places, and about groups."""
    entries = [
        stores.QuotaEntry(each.entity, {key: value for key, value in each.quotas.items() if value is not None})
        for each in declared.entries
    ]
    places = {str(each.entity): each.location.place for each in declared.entries}
    findings = [
        replace(finding, about=f"{finding.about} ({places[finding.about]})") if finding.about in places else finding
        for finding in odd_entries(entries)
    ]
    store_url = ", ".join(paths)
    findings += _findings_of_groups((*policy_groups(policy), *declared.groups), entries, store_url, reading)
    return _result(store_url, entries, findings)


def _result(
    place: str, entries: Sequence[stores.QuotaEntry], findings: Sequence[Finding], unknown: Sequence[str] = ()
) -> DoctorResult:
    ordered = tuple(sorted(findings, key=lambda finding: (SEVERITIES[finding.severity], finding.check)))
    return DoctorResult(store_url=place, entries=len(entries), findings=ordered, not_looked_at=tuple(unknown))


def odd_cluster(info: stores.ClusterInfo, entries: Sequence[stores.QuotaEntry]) -> Iterator[Finding]:
    """Yield the findings about the cluster."""
    for broker, name in sorted(info.callbacks.items()):
        yield found("quota-callback", f"broker {broker}", name=name)
    for broker, reason in info.unanswered.items():
        yield found("broker-unanswered", f"broker {broker}", reason=reason)
    for path, reason in info.unreadable:
        yield found("unreadable-znode", path, reason=reason)
    if not info.reassigning:  # a throttle lasts while no replica is moving
        sure = "no partition is being moved" if info.reassigning is False else "it is not known whether any moves"
        for place, name, value in info.replication_throttles:
            kind, _, of = place.partition(" ")
            whose = "--entity-default" if of == "defaults" else f"--entity-name {of}"
            yield found("replication-throttle", place, name=name, value=value, sure=sure, kind=kind, whose=whose)
    for entry in entries if info.too_old else ():
        for key in NEW_KEYS:
            if key in entry.quotas:
                yield found("broker-too-old", entry.entity, key=key, brokers=", ".join(info.too_old))
    for path in info.empty_znodes:
        severity, more = None, ""
        if "<default>" in path:
            severity, more = Severity.WARNING, ", and brokers may take it for a default that is set"
        yield found("empty-znode", path, severity=severity, more=more, path=path)


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
