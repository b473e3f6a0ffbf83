"""Validation of alterations: our own refusals first, then the rules of Kafka that the store follows.

A name that Kafka accepts and ZooKeeper can't hold is refused for ZooKeeper stores only.
"""

from enum import Enum
from typing import Final

from kafka_quotas.core.changes.validation import kraft_verdict, our_refusals, zookeeper_verdict
from kafka_quotas.core.errors import InvalidQuotaError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.threshold import is_threshold_entity, no_place_for
from kafka_quotas.stores.store import Alteration

_RELATIVE: Final = frozenset({".", ".."})


def has_znode(entity: Entity) -> bool:
    """Return whether ZooKeeper can have a znode for an entity.

    A path must not contain `.` or `..` as a component, and sanitizing leaves dots as they are.
    """
    return not any(name in _RELATIVE for _, name in entity.parts)


class ValidationRules(Enum):
    """The rules that decide about an alteration."""

    KRAFT = "kraft"
    """Our refusals and those of the KRaft controller."""
    LOCAL = "local"
    """Those of `KRAFT`, but thresholds are accepted."""
    ZOOKEEPER = "zookeeper"
    """Those of `KRAFT`, and those of brokers in ZooKeeper mode, which can't take IPv6 addresses for example."""
    ZOOKEEPER_ONLY = "zookeeper-only"
    """The rules of brokers in ZooKeeper mode alone (`--allow-invalid`)."""
    OURS_ONLY = "ours-only"
    """Our refusals alone, for a store whose server validates alterations itself."""
    SERVER_ONLY = "server-only"
    """The verdict of that server alone (`--allow-invalid`)."""


def refusal(alteration: Alteration, *, rules: ValidationRules) -> InvalidQuotaError | None:
    """Return the error that refuses the alteration, None where it is accepted."""
    unwritable = _unwritable_name(alteration)
    if unwritable is not None:
        return unwritable
    if is_threshold_entity(alteration.entity):
        is_local = rules is ValidationRules.LOCAL
        return (
            _quota_refusal(alteration, rules=ValidationRules.OURS_ONLY) if is_local else no_place_for(alteration.entity)
        )
    if rules in (ValidationRules.ZOOKEEPER, ValidationRules.ZOOKEEPER_ONLY) and not has_znode(alteration.entity):
        return InvalidQuotaError(f"ZooKeeper can't hold this name: {alteration.entity}")
    match rules:
        case ValidationRules.SERVER_ONLY:
            return None
        case ValidationRules.ZOOKEEPER_ONLY:
            changes = tuple(alteration.changes.items())
            return zookeeper_verdict(alteration.entity.parts, changes, resolves=name_resolves)
        case _:
            return _quota_refusal(alteration, rules=rules)


def _quota_refusal(alteration: Alteration, *, rules: ValidationRules) -> InvalidQuotaError | None:
    """Return the error by which our rules, or those of a Kafka, refuse client quotas."""
    pairs, changes = alteration.entity.parts, tuple(alteration.changes.items())
    refused = our_refusals(alteration.entity, alteration.changes)
    if refused is not None or rules is ValidationRules.OURS_ONLY:
        return refused
    refused = kraft_verdict(pairs, changes, resolves=name_resolves)
    if refused is None and rules is ValidationRules.ZOOKEEPER:
        refused = zookeeper_verdict(pairs, changes, resolves=name_resolves)
    return refused


def name_resolves(host: str) -> bool:
    """Return whether this machine resolves a host name, as the controller would have to."""
    import socket  # noqa: PLC0415 - only host names as ip entities need it

    try:
        socket.getaddrinfo(host, None)
    except (OSError, UnicodeError):
        return False
    return True


def _unwritable_name(alteration: Alteration) -> InvalidQuotaError | None:
    """Return the refusal of a name that is not valid UTF-8.

    Such a name may come from a command line in another encoding.
    """
    for kind, name in alteration.entity.parts:
        try:
            (name or "").encode()
        except UnicodeEncodeError:
            return InvalidQuotaError(
                f"the {kind} name is not valid UTF-8: {name!a}",
                hint="check the encoding of the terminal or of the file it came from",
            )
    return None
