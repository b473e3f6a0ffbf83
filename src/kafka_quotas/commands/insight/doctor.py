"""Odd findings in a store, and in its cluster as far as quotas depend on it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from kafka_quotas import stores
from kafka_quotas.commands.insight.usage import UsageReading
from kafka_quotas.commands.quotas.groups import clients_in, odd_groups, policy_groups
from kafka_quotas.commands.quotas.quota_checks import SEVERITIES, Finding, Severity, found, odd_entries
from kafka_quotas.core.described import Sentences, StoreAddress
from kafka_quotas.core.groups.group import Group
from kafka_quotas.core.model.entity import EVERYTHING
from kafka_quotas.core.model.quota_key import NEW_KEYS
from kafka_quotas.core.quota_files.declarations import Declarations


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
