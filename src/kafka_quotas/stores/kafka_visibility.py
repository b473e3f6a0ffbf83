"""Whether an accepted change shows: a KRaft broker answers from its own copy, which follows the controller."""

from collections.abc import Sequence
from typing import Final

from kafka_quotas.core.describe_filter import EVERYTHING, FilterComponent, Match, QuotaFilter
from kafka_quotas.core.entity import Entity
from kafka_quotas.core.errors import StoreUnreachableError
from kafka_quotas.core.zookeeper_layout import WHOLE_NUMBER_TOLERANCE
from kafka_quotas.stores.kafka_connection import KafkaConnection
from kafka_quotas.stores.kafka_messages import describe_request, described_entries
from kafka_quotas.stores.polling import Polling
from kafka_quotas.stores.store import Alteration, QuotaEntry

POLL_INTERVAL_S: Final = 0.02
_FEW: Final = 10
"""Up to so many entities are asked for one by one, more by reading everything."""


def wait_until_visible(
    connection: KafkaConnection, alterations: Sequence[Alteration], *, timeout_s: float
) -> list[Entity]:
    """The entities that some broker did not show as altered within `timeout_s` seconds; none when all is well."""
    for node_id in connection.node_ids() if alterations else ():
        behind = _left_behind(connection, node_id, alterations, timeout_s=timeout_s)
        if behind:
            return [alteration.entity for alteration in behind]
    return []


def _left_behind(
    connection: KafkaConnection, node_id: int, alterations: Sequence[Alteration], *, timeout_s: float
) -> list[Alteration]:
    """The alterations that one broker did not show in time; none where it went away: it catches up as it returns."""
    behind = list(alterations)

    def caught_up() -> bool:
        stored = _stored(connection, node_id, behind)
        behind[:] = [alteration for alteration in behind if not _shows(stored.get(alteration.entity), alteration)]
        return not behind

    try:
        Polling(POLL_INTERVAL_S).until(caught_up, timeout_s=timeout_s)
    except StoreUnreachableError:
        return []
    return behind


def _stored(connection: KafkaConnection, node_id: int, alterations: Sequence[Alteration]) -> dict[Entity, QuotaEntry]:
    """What a broker says about some entities now."""
    few = len(alterations) <= _FEW
    filters = [_only(alteration.entity) for alteration in alterations] if few else [EVERYTHING]
    entries: list[QuotaEntry] = []
    for quota_filter in filters:
        entries += described_entries(connection.send(describe_request(quota_filter), node_id=node_id))
    return {entry.entity: entry for entry in entries}


def _only(entity: Entity) -> QuotaFilter:
    """The filter that matches one entity."""
    components = (
        FilterComponent(entity_type=kind, match=Match.DEFAULT if name is None else Match.EXACT, name=name)
        for kind, name in entity.parts
    )
    return QuotaFilter(components=tuple(components), strict=True)


def _shows(entry: QuotaEntry | None, alteration: Alteration) -> bool:
    """Whether a stored entry has every change of an alteration."""
    quotas = entry.quotas if entry is not None else {}
    for key, value in alteration.changes.items():
        stored = quotas.get(key)
        if value is None or stored is None:
            if value is not stored:
                return False
        elif abs(stored - value) > WHOLE_NUMBER_TOLERANCE:
            return False
    return True
