"""Odd findings in a store, and in its cluster as far as quotas depend on it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from kafka_quotas.commands.quotas.quota_checks import SEVERITIES, Finding, Severity, finding_about, odd_entries
from kafka_quotas.core.described import Sentences, StoreAddress
from kafka_quotas.core.model.entity import EVERYTHING
from kafka_quotas.core.model.quota_key import NEW_KEYS
from kafka_quotas.stores import ClusterInfo, QuotaEntry, Store, StoreKind, StoreSettings, parse_store_url

_DEFAULT_NODE = "<default>"


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorResult:
    """The findings about a store."""

    DOCUMENT: ClassVar = "store=store_url entities=entries not_looked_at findings"
    store_url: StoreAddress
    entries: int
    """The number of entries looked at."""
    findings: tuple[Finding, ...]
    """The worst first."""
    not_looked_at: Sentences
    """What could not be looked at, one line each."""

    @property
    def has_errors(self) -> bool:
        """Whether anything is an error."""
        return any(finding.severity is Severity.ERROR for finding in self.findings)


def doctor(store: Store, *, settings: StoreSettings) -> DoctorResult:
    """Return the findings about all stored quotas, and about the cluster of the store if it has one."""
    info = cluster_info_of(store, settings=settings)
    entries = info.readable if info.unreadable else store.describe(EVERYTHING)
    found = [
        *odd_entries(entries, static=store.kind.is_static, threads=min(info.threads.values(), default=None)),
        *odd_cluster(info, entries),
    ]
    return DoctorResult(
        store_url=store.url,
        entries=len(entries),
        findings=tuple(sorted(found, key=lambda finding: (SEVERITIES[finding.severity], finding.check))),
        not_looked_at=info.unknown,
    )


def cluster_info_of(store: Store, *, settings: StoreSettings) -> ClusterInfo:
    """Return what the cluster of a store reports, nothing for a store in a file."""
    if store.kind is StoreKind.KAFKA:
        from kafka_quotas.stores import kafka_cluster_info  # noqa: PLC0415 - only a Kafka store needs it

        return kafka_cluster_info(parse_store_url(store.url), settings=settings)
    if store.kind is StoreKind.ZOOKEEPER:
        from kafka_quotas.stores import zookeeper_cluster_info  # noqa: PLC0415 - loads kazoo

        return zookeeper_cluster_info(parse_store_url(store.url), settings=settings)
    return ClusterInfo(unknown=("a local store: no brokers to check",))


def odd_cluster(info: ClusterInfo, entries: Sequence[QuotaEntry]) -> Iterator[Finding]:
    """Yield the findings about the cluster."""
    for broker, name in sorted(info.callbacks.items()):
        yield Finding(
            severity=Severity.WARNING,
            check="quota-callback",
            about=f"broker {broker}",
            sentence=f"client.quota.callback.class={name} decides about quotas: it may ignore all that is stored",
            remedy="read its documentation; what --effective and tree show does not hold there",
        )
    for broker, reason in info.unanswered.items():
        yield Finding(
            severity=Severity.WARNING,
            check="broker-unanswered",
            about=f"broker {broker}",
            sentence=f"the cluster lists it, and it could not be asked for its settings: {reason}",
            remedy="check that it runs, and that the address which it advertises can be reached from here",
        )
    for znode in info.unreadable:
        yield Finding(
            severity=Severity.ERROR,
            check="unreadable-znode",
            about=znode.path,
            sentence=f"this znode can't be read, and was left out of all other checks: {znode.reason}",
            remedy="fix or delete it in zookeeper-shell; if access is denied, log in as a user that may read it",
        )
    if not info.reassigning:
        yield from _lasting_throttles(info)
    yield from _too_new(info, entries)
    for path in info.empty_znodes:
        of_default = _DEFAULT_NODE in path
        yield Finding(
            severity=Severity.WARNING if of_default else Severity.NOTE,
            check="empty-znode",
            about=path,
            sentence="this znode holds nothing any more"
            + (", and brokers may take it for a default that is set" if of_default else ""),
            remedy=f"in zookeeper-shell: delete {path}",
        )


def _lasting_throttles(info: ClusterInfo) -> Iterator[Finding]:
    """Yield a finding for replication throttles while no replica is moving."""
    for throttle in info.replication_throttles:
        kind, _, name = throttle.place.partition(" ")
        whose = "--entity-default" if name == "defaults" else f"--entity-name {name}"
        sure = "no partition is being moved" if info.reassigning is False else "it is not known whether any moves"
        yield Finding(
            severity=Severity.WARNING,
            check="replication-throttle",
            about=throttle.place,
            sentence=f"{throttle.name}={throttle.value} throttles replication, and {sure}",
            remedy=f"kafka-configs --alter --entity-type {kind}s {whose} --delete-config {throttle.name}",
        )


def _too_new(info: ClusterInfo, entries: Sequence[QuotaEntry]) -> Iterator[Finding]:
    """Yield a finding for stored keys that some broker is too old for."""
    if not info.too_old:
        return
    for entry in entries:
        for key in NEW_KEYS:
            if key in entry.quotas:
                sentence = f"{key} came with Kafka 2.7; broker {', '.join(info.too_old)} is older and ignores it"
                yield finding_about(
                    entry.entity,
                    Severity.ERROR,
                    check="broker-too-old",
                    sentence=sentence,
                    remedy="upgrade those brokers",
                )
