"""Whether a store accepts an alteration: our refusals first, then the rules of Kafka that the store follows.

Names that Kafka accepts and ZooKeeper can't hold.
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
    """Whether ZooKeeper can have a znode for an entity: paths take no `.` and no `..`, and sanitizing keeps dots."""
    return not any(name in _RELATIVE for _, name in entity.parts)


class ValidationRules(Enum):
    """Whose rules decide about an alteration."""

    KRAFT = "kraft"
    """Our refusals and those of the KRaft controller."""
    LOCAL = "local"
    """Those of `KRAFT`, but thresholds are accepted."""
    ZOOKEEPER = "zookeeper"
    """Those of `KRAFT`, and those of brokers in ZooKeeper mode, which can't take IPv6 addresses for example."""
    ZOOKEEPER_ONLY = "zookeeper-only"
    """The rules of brokers in ZooKeeper mode and nothing else (`--allow-invalid`)."""
    OURS_ONLY = "ours-only"
    """Our refusals alone, for a store whose server gives its own verdict."""
    SERVER_ONLY = "server-only"
    """Nothing but that server's own verdict (`--allow-invalid`)."""


def refusal(alteration: Alteration, *, rules: ValidationRules) -> InvalidQuotaError | None:
    """Why the alteration is refused, None where it is accepted."""
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
    """Why quotas of Kafka's are refused by our own rules, and by those of a Kafka."""
    pairs, changes = alteration.entity.parts, tuple(alteration.changes.items())
    refused = our_refusals(alteration.entity, alteration.changes)
    if refused is not None or rules is ValidationRules.OURS_ONLY:
        return refused
    refused = kraft_verdict(pairs, changes, resolves=name_resolves)
    if refused is None and rules is ValidationRules.ZOOKEEPER:
        refused = zookeeper_verdict(pairs, changes, resolves=name_resolves)
    return refused


def name_resolves(host: str) -> bool:
    """Whether this machine finds an address for a host name, as the controller would have to."""
    import socket  # noqa: PLC0415 - only host names as ip entities need it

    try:
        socket.getaddrinfo(host, None)
    except (OSError, UnicodeError):
        return False
    return True


def _unwritable_name(alteration: Alteration) -> InvalidQuotaError | None:
    """The refusal of a name that is no Unicode text, such as one from a command line in another encoding."""
    for kind, name in alteration.entity.parts:
        try:
            (name or "").encode()
        except UnicodeEncodeError:
            return InvalidQuotaError(
                f"the {kind} name is not valid UTF-8: {name!a}",
                hint="check the encoding of the terminal or of the file it came from",
            )
    return None
