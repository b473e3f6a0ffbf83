"""DescribeClientQuotas and AlterClientQuotas (KIP-546, v0 and v1): our values as kafka-python's messages, and back."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from kafka.protocol.admin.client_quotas import AlterClientQuotasRequest, DescribeClientQuotasRequest

from kafka_quotas.core.describe_filter import Match, QuotaFilter
from kafka_quotas.core.entity import Entity
from kafka_quotas.stores.store import Alteration, QuotaEntry

LARGEST_REQUEST: Final = 10_000
"""Changes in one request; a KRaft controller refuses more records in one batch (`POLICY_VIOLATION`)."""
_MATCH_TYPES: Final = {Match.EXACT: 0, Match.DEFAULT: 1, Match.ANY: 2}


def describe_request(quota_filter: QuotaFilter) -> Any:
    """The request for the entries that a filter matches."""
    return DescribeClientQuotasRequest(
        components=[
            DescribeClientQuotasRequest.ComponentData(
                entity_type=component.entity_type, match_type=_MATCH_TYPES[component.match], match=component.name
            )
            for component in quota_filter.components
        ],
        strict=quota_filter.strict,
    )


def described_entries(response: Any) -> list[QuotaEntry]:
    """The entries of a response without error, sorted by entity."""
    entries = [
        QuotaEntry(
            entity=_entity(entry.entity), quotas={value.key: value.value for value in sorted(entry.values, key=_key)}
        )
        for entry in response.entries or ()
    ]
    return sorted((entry for entry in entries if entry.quotas), key=lambda entry: entry.entity.sort_key)


def alter_request(alterations: Iterable[Alteration], *, validate_only: bool) -> Any:
    """The request that applies some alterations, one entry each."""
    return AlterClientQuotasRequest(
        entries=[_altering(alteration.entity, alteration.changes.items()) for alteration in alterations],
        validate_only=validate_only,
    )


def alter_as_given_request(entity: Entity, changes: Iterable[tuple[str, float | None]]) -> Any:
    """The request that makes changes to one entity in this order, also where a key occurs twice."""
    return AlterClientQuotasRequest(entries=[_altering(entity, changes)], validate_only=False)


def alter_outcomes(response: Any) -> dict[Entity, tuple[int, str | None]]:
    """The error code (0: none) and message of every entity in a response."""
    return {_entity(entry.entity): (entry.error_code, entry.error_message) for entry in response.entries}


def request_batches(alterations: Sequence[Alteration]) -> Iterator[list[Alteration]]:
    """The alterations cut so that no batch has more than `LARGEST_REQUEST` changes; order is kept."""
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


def _altering(entity: Entity, changes: Iterable[tuple[str, float | None]]) -> Any:
    """The entry with the changes to one entity."""
    kind = AlterClientQuotasRequest.EntryData
    return kind(
        entity=[kind.EntityData(entity_type=type_, entity_name=name) for type_, name in entity.parts],
        ops=[
            kind.OpData(key=key, value=0.0 if value is None else value, remove=value is None) for key, value in changes
        ],
    )


def _entity(parts: Any) -> Entity:
    return Entity.from_pairs((part.entity_type, part.entity_name) for part in parts)


def _key(value: Any) -> str:
    return str(value.key)
