"""Live values for completion: stored entities, quota keys, stores.

Invariants: completing never fails, writes or waits for a server; only the local store is asked.
"""

import os
from collections.abc import Iterator

from kafka_quotas.core.entity import CLIENT_ID, IP, USER
from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.quota_key import QUOTA_KEYS


def complete_users(incomplete: str) -> list[str]:
    """The users in the local store whose names begin so."""
    return sorted({name for name in _stored_names(USER) if name.startswith(incomplete)})


def complete_clients(incomplete: str) -> list[str]:
    """The client-ids in the local store that begin so."""
    return sorted({name for name in _stored_names(CLIENT_ID) if name.startswith(incomplete)})


def complete_ips(incomplete: str) -> list[str]:
    """The addresses in the local store that begin so."""
    return sorted({name for name in _stored_names(IP) if name.startswith(incomplete)})


def complete_keys(incomplete: str) -> list[str]:
    """The quota keys that begin with what follows the last comma."""
    done, comma, last = incomplete.rpartition(",")
    return [f"{done}{comma}{key}" for key in QUOTA_KEYS if key.startswith(last)]


def complete_assignments(incomplete: str) -> list[str]:
    """The quota keys with `=` that begin with what follows the last comma."""
    return [f"{text}=" for text in complete_keys(incomplete)]


def complete_stores(incomplete: str) -> list[str]:
    """The kinds of store address that begin so."""
    return [scheme for scheme in ("local:", "zk://", "kafka://", "static:") if scheme.startswith(incomplete)]


def complete_contexts(incomplete: str) -> list[str]:
    """The names of contexts that begin so."""
    from kafka_quotas.stores.context_file import contexts_path, read_contexts  # noqa: PLC0415 - only completing pays

    try:
        contexts = read_contexts(contexts_path())
    except KafkaQuotasError:
        return []
    return [context.name for context in contexts.contexts if context.name.startswith(incomplete)]


def _stored_names(entity_type: str) -> Iterator[str]:
    """The names of a type in the store of the variable, if that is a local one, or in the default local store."""
    from kafka_quotas.core.describe_filter import EVERYTHING  # noqa: PLC0415 - only completing pays for the store
    from kafka_quotas.stores.open_store import open_store  # noqa: PLC0415

    url = os.environ.get("KAFKA_QUOTAS_STORE") or None
    if url is not None and not url.startswith("local:"):
        return
    try:
        store = open_store(url)
        try:
            entries = store.describe(EVERYTHING)
        finally:
            store.close()
    except KafkaQuotasError:
        return
    for entry in entries:
        name = entry.entity.part(entity_type)
        if isinstance(name, str):
            yield name
