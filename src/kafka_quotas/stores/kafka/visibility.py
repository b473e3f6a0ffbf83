"""Reading back of accepted changes: a KRaft broker answers from its own copy, which follows the controller."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kafka_quotas.core.errors import StoreError
from kafka_quotas.core.formats.zookeeper import WHOLE_NUMBER_TOLERANCE
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_filter import EVERYTHING, entity_filter
from kafka_quotas.stores.kafka.cluster_client import ClusterClient
from kafka_quotas.stores.kafka.fan_out import ask_each
from kafka_quotas.stores.kafka.messages import described_entries
from kafka_quotas.stores.polling import Polling
from kafka_quotas.stores.store import Alteration, QuotaEntry
from kafka_quotas.wire.client.client_quotas import DescribeQuotasRequest

POLL_INTERVAL_S: Final = 0.02
_FEW: Final = 10
"""Number of entities up to which each has its own request, as more are found by reading everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Visibility:
    """What was found by reading changes back."""

    late: frozenset[Entity] = frozenset()
    """Entities that some broker did not show as altered in time."""
    not_asked: str | None = None
    """The brokers that could not be asked, with the reasons, None where all answered."""


def wait_until_visible(connection: ClusterClient, alterations: Sequence[Alteration], *, timeout_s: float) -> Visibility:
    """Wait until every broker that answers shows the alterations, at most `timeout_s` seconds.

    A broker that does not answer takes the alterations over when it returns. This never raises a `StoreError`, as the
    alterations were made.
    """
    if not alterations:
        return Visibility()
    try:
        node_ids = connection.node_ids()
    except StoreError as error:
        return Visibility(not_asked=error.message)
    found = ask_each(node_ids, lambda node_id: _late_entities(connection, node_id, alterations, timeout_s=timeout_s))
    return Visibility(late=frozenset().union(*found.answers.values()), not_asked=found.missing)


def _late_entities(
    connection: ClusterClient, node_id: int, alterations: Sequence[Alteration], *, timeout_s: float
) -> frozenset[Entity]:
    """Return the entities that one broker did not show as altered in time."""
    late = list(alterations)

    def caught_up() -> bool:
        stored = _stored(connection, node_id, late)
        late[:] = [alteration for alteration in late if not _shows(stored.get(alteration.entity), alteration)]
        return not late

    Polling(POLL_INTERVAL_S).until(caught_up, timeout_s=timeout_s)
    return frozenset(alteration.entity for alteration in late)


def _stored(connection: ClusterClient, node_id: int, alterations: Sequence[Alteration]) -> dict[Entity, QuotaEntry]:
    few = len(alterations) <= _FEW
    filters = [entity_filter(alteration.entity) for alteration in alterations] if few else [EVERYTHING]
    entries: list[QuotaEntry] = []
    for quota_filter in filters:
        request = DescribeQuotasRequest(quota_filter=quota_filter)
        entries += described_entries(connection.send_to(request, node_id=node_id))
    return {entry.entity: entry for entry in entries}


def _shows(entry: QuotaEntry | None, alteration: Alteration) -> bool:
    """Return whether a stored entry has every change of an alteration."""
    quotas = entry.quotas if entry is not None else {}
    for key, value in alteration.changes.items():
        stored = quotas.get(key)
        if value is None or stored is None:
            if value is not stored:
                return False
        # A broker in ZooKeeper mode stores a byte rate as the whole number that it is this close to.
        elif abs(stored - value) > WHOLE_NUMBER_TOLERANCE:
            return False
    return True
