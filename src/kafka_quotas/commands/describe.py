"""Which quotas are stored."""

from dataclasses import dataclass

from kafka_quotas.core.describe_filter import QuotaFilter
from kafka_quotas.core.entity import Entity
from kafka_quotas.core.threshold_entity import refuse_elsewhere
from kafka_quotas.stores.store import QuotaEntry, Store


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeResult:
    """The matching entries of a store, sorted by entity."""

    store_url: str
    entries: tuple[QuotaEntry, ...]


def describe(store: Store, *, quota_filter: QuotaFilter) -> DescribeResult:
    """The entries that match; none is an answer too.

    Raises `InvalidQuotaError` for a filter that Kafka refuses, or that asks for thresholds where there can be none,
    and whatever the store raises.
    """
    for component in quota_filter.components:
        refuse_elsewhere(store.url, Entity.from_pairs([(component.entity_type, component.name)]))
    entries = sorted(store.describe(quota_filter), key=lambda entry: entry.entity.sort_key)
    return DescribeResult(store_url=store.url, entries=tuple(entries))
