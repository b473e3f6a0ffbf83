"""Conversion between the values of stores and the messages of DescribeClientQuotas and AlterClientQuotas."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.stores.store import Alteration, QuotaEntry
from kafka_quotas.wire.client.client_quotas import DescribedQuotas, EntityOutcome

LARGEST_REQUEST: Final = 10_000
"""Changes in one request, as a KRaft controller refuses more records in one batch (`POLICY_VIOLATION`)."""


def described_entries(answer: DescribedQuotas) -> list[QuotaEntry]:
    """Return the entries of an answer without error, sorted by entity."""
    entries = [
        QuotaEntry(entity=entity, quotas=dict(sorted(quotas.items()))) for entity, quotas in answer.entries if quotas
    ]
    return sorted(entries, key=lambda entry: entry.entity.sort_key)


def alter_outcomes(answer: Iterable[EntityOutcome]) -> dict[Entity, tuple[int, str | None]]:
    """Return the error code (0: none) and message by entity of an answer."""
    return {entity: (code, message) for entity, code, message in answer}


def request_batches(alterations: Sequence[Alteration]) -> Iterator[list[Alteration]]:
    """Yield the alterations in order, in batches of one or of at most `LARGEST_REQUEST` changes."""
    batch: list[Alteration] = []
    changes = 0
    for alteration in alterations:
        if batch and changes + len(alteration.changes) > LARGEST_REQUEST:
            yield batch
            batch, changes = [], 0
        batch.append(alteration)
        changes += len(alteration.changes)
    if batch:
        yield batch
