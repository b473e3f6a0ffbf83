"""Validation of alterations: our own refusals first, then the rules of Kafka that a kind of store follows.

A name that Kafka accepts and ZooKeeper can't hold is refused for ZooKeeper stores only.
"""

from collections.abc import Callable

from kafka_quotas.core.changes.validation import RELATIVE_NODES, kraft_verdict, our_refusals, zookeeper_verdict
from kafka_quotas.core.errors import InvalidQuotaError, KafkaQuotasError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_filter import QuotaFilter, entity_filter
from kafka_quotas.core.model.threshold import is_threshold_entity, no_place_for
from kafka_quotas.stores.store import Alteration, AlterationResult, QuotaEntry
from kafka_quotas.stores.url import StoreKind


def checked(
    alteration: Alteration,
    *,
    kind: StoreKind,
    describe: Callable[[QuotaFilter], list[QuotaEntry]],
    allow_invalid: bool = False,
) -> AlterationResult:
    """Return the result of an alteration before it is written: its refusal, or what it finds stored.

    The entity is read by `describe`, if the alteration is `only_set` and valid by the rules of the kind of store. With
    `allow_invalid` our own refusals are left out.
    """
    entity, changes = alteration.entity, alteration.changes
    refused = refusal(alteration, kind=kind, allow_invalid=allow_invalid)
    if refused is not None or not alteration.only_set:
        return AlterationResult(entity=entity, error=refused)
    entries = describe(entity_filter(entity))
    before = entries[0].quotas if entries else {}
    unset = ", ".join(key for key, new in changes.items() if new is None and key not in before)
    there = f"set there: {', '.join(sorted(before))}" if before else "nothing is set there"
    error = KafkaQuotasError(f"not set on {entity}, so not removed: {unset}", hint=there) if unset else None
    return AlterationResult(entity=entity, error=error, before=before)


def refusal(alteration: Alteration, *, kind: StoreKind, allow_invalid: bool = False) -> InvalidQuotaError | None:
    """Return the error by which the rules of a kind of store refuse it, None where it is accepted."""
    entity, changes = alteration.entity, tuple(alteration.changes.items())
    refused = _unwritable_name(entity)
    if refused is None and not allow_invalid:
        refused = our_refusals(entity, alteration.changes)
    if refused is not None:
        return refused
    if is_threshold_entity(entity):
        return None if kind.holds_thresholds else no_place_for(entity)
    if kind is StoreKind.ZOOKEEPER and not has_znode(entity):
        return InvalidQuotaError(f"ZooKeeper can't hold this name: {entity}")
    if kind is StoreKind.LOCAL or (kind is StoreKind.ZOOKEEPER and not allow_invalid):
        refused = kraft_verdict(entity.parts, changes, resolves=name_resolves)
    if refused is None and kind is StoreKind.ZOOKEEPER:
        refused = zookeeper_verdict(entity.parts, changes, resolves=name_resolves)
    return refused  # the brokers of a Kafka store decide themselves


def has_znode(entity: Entity) -> bool:
    """Return whether ZooKeeper can have a znode for an entity, as no path has `.` or `..` in it."""
    return not any(name in RELATIVE_NODES for _, name in entity.parts)


def name_resolves(host: str) -> bool:
    """Return whether this machine resolves a host name, as the controller would have to."""
    import socket  # noqa: PLC0415 - only host names as ip entities need it

    try:
        socket.getaddrinfo(host, None)
    except (OSError, UnicodeError):
        return False
    return True


def _unwritable_name(entity: Entity) -> InvalidQuotaError | None:
    """Return the refusal of a name that is not valid UTF-8, as from a terminal in another encoding."""
    for kind, name in entity.parts:
        try:
            (name or "").encode()
        except UnicodeEncodeError:
            return InvalidQuotaError(
                f"the {kind} name is not valid UTF-8: {name!a}",
                hint="check the encoding of the terminal or of the file it came from",
            )
    return None
