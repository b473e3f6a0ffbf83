"""DescribeClientQuotas and AlterClientQuotas: conversion between the values of stores and messages."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_filter import QuotaFilter
from kafka_quotas.stores.store import Alteration, QuotaEntry
from kafka_quotas.wire.client.client_quotas import (
    AlterQuotasRequest,
    DescribedQuotas,
    DescribeQuotasRequest,
    EntityChanges,
    EntityOutcome,
)

LARGEST_REQUEST: Final = 10_000
"""Changes in one request, as a KRaft controller refuses more records in one batch (`POLICY_VIOLATION`)."""


def describe_request(quota_filter: QuotaFilter) -> DescribeQuotasRequest:
    """Return the request for the entries that a filter matches."""
    return DescribeQuotasRequest(quota_filter=quota_filter)


def described_entries(answer: DescribedQuotas) -> list[QuotaEntry]:
    """Return the entries of an answer without error, sorted by entity."""
    entries = [
        QuotaEntry(entity=entity, quotas=dict(sorted(quotas.items()))) for entity, quotas in answer.entries if quotas
    ]
    return sorted(entries, key=lambda entry: entry.entity.sort_key)


def alter_request(alterations: Iterable[Alteration], *, validate_only: bool) -> AlterQuotasRequest:
    """Return the request that applies some alterations, one entry each."""
    entries = tuple(EntityChanges(each.entity, tuple(each.changes.items())) for each in alterations)
    return AlterQuotasRequest(entries=entries, validate_only=validate_only)


def alter_as_given_request(entity: Entity, changes: Iterable[tuple[str, float | None]]) -> AlterQuotasRequest:
    """Return the request that makes changes to one entity in this order, even where a key occurs twice."""
    return AlterQuotasRequest(entries=(EntityChanges(entity, tuple(changes)),), validate_only=False)


def alter_outcomes(answer: Iterable[EntityOutcome]) -> dict[Entity, tuple[int, str | None]]:
    """Return the error code (0: none) and message by entity of an answer."""
    return {entity: (code, message) for entity, code, message in answer}


def request_batches(alterations: Sequence[Alteration]) -> Iterator[list[Alteration]]:
    """Yield the alterations in batches of at most `LARGEST_REQUEST` changes, in order.

    An alteration with more changes than that makes a batch of its own.
    """
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
