"""Brokers that are too old for a quota key: what is stored for it there, they ignore."""

from collections.abc import Callable, Sequence

from kafka_quotas.core.errors import StoreError
from kafka_quotas.core.quota_key import QUOTA_KEYS
from kafka_quotas.stores.settings import StoreSettings
from kafka_quotas.stores.store_url import StoreKind, parse_store_url

NEW_KEYS = tuple(key.name for key in QUOTA_KEYS.values() if key.since == "2.7")
"""The keys that came with Kafka 2.7; all others are older than any broker that quotas can be set for here."""


def warning_of_old_brokers(store_url: str, keys: Sequence[str], *, settings: Callable[[], StoreSettings]) -> str | None:
    """What to beware of where a broker of the cluster is too old for one of the keys, else None.

    Nobody is asked unless the keys are new ones, and a cluster that can't be asked is no reason to warn.
    """
    new = [key for key in NEW_KEYS if key in keys]
    kind = parse_store_url(store_url).kind
    if not new or kind not in (StoreKind.KAFKA, StoreKind.ZOOKEEPER):
        return None
    try:
        old = _old_brokers(store_url, settings())
    except StoreError:
        return None
    return f"broker {', '.join(old)} is older than Kafka 2.7 and ignores {', '.join(new)}" if old else None


def _old_brokers(store_url: str, settings: StoreSettings) -> tuple[str, ...]:
    address = parse_store_url(store_url)
    if address.kind is StoreKind.KAFKA:
        from kafka_quotas.stores.kafka_facts import old_kafka_brokers  # noqa: PLC0415 - only a Kafka store needs it

        return old_kafka_brokers(address, settings=settings)
    from kafka_quotas.stores.zookeeper_facts import old_zookeeper_brokers  # noqa: PLC0415 - loads kazoo

    return old_zookeeper_brokers(address, settings=settings)
