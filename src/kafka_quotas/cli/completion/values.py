"""Live values for completion: stored entities, quota keys, stores.

Invariants: completing never fails, never changes a store, and never waits long for one, see `stored_names`.
"""

from collections.abc import Mapping
from typing import Any, Final

from kafka_quotas.cli.output.view import Output
from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.model.entity import CLIENT_ID, IP, USER
from kafka_quotas.core.model.quota_key import QUOTA_KEYS

LONG_TYPES: Final[Mapping[str, str]] = {"users": USER, "clients": CLIENT_ID, "ips": IP}
"""The entity types as kafka-configs spells them."""


def complete_users(ctx: Any, incomplete: str) -> list[str]:
    """Return the users in the store that begin so."""
    return _names(ctx, USER, incomplete)


def complete_clients(ctx: Any, incomplete: str) -> list[str]:
    """Return the client-ids in the store that begin so."""
    return _names(ctx, CLIENT_ID, incomplete)


def complete_ips(ctx: Any, incomplete: str) -> list[str]:
    """Return the addresses in the store that begin so."""
    return _names(ctx, IP, incomplete)


def complete_entity_types(incomplete: str) -> list[str]:
    """Return the entity types of kafka-configs that begin so."""
    return [text for text in LONG_TYPES if text.startswith(incomplete)]


def complete_entity_names(ctx: Any, incomplete: str) -> list[str]:
    """Return the names in the store that begin so, of the type that was typed last."""
    typed = (() if ctx is None else ctx.params.get("entity_type")) or ()
    entity_type = LONG_TYPES.get(typed[-1]) if typed else None
    return [] if entity_type is None else _names(ctx, entity_type, incomplete)


def complete_keys(incomplete: str) -> list[str]:
    """Return the quota keys that begin with what follows the last comma."""
    done, comma, last = incomplete.rpartition(",")
    return [f"{done}{comma}{key}" for key in QUOTA_KEYS if key.startswith(last)]


def complete_assignments(incomplete: str) -> list[str]:
    """Return the quota keys with `=` that begin with what follows the last comma."""
    return [f"{text}=" for text in complete_keys(incomplete)]


def complete_forms(incomplete: str) -> list[str]:
    """Return the forms of a listing that begin so."""
    return [form.value for form in Output if form.value.startswith(incomplete)]


def complete_stores(incomplete: str) -> list[str]:
    """Return the kinds of store address that begin so."""
    return [scheme for scheme in ("local:", "zk://", "kafka://", "static:") if scheme.startswith(incomplete)]


def complete_contexts(incomplete: str) -> list[str]:
    """Return the names of contexts that begin so."""
    from kafka_quotas.stores.contexts.file import contexts_path, read_contexts  # noqa: PLC0415 - only completing pays

    try:
        contexts = read_contexts(contexts_path())
    except KafkaQuotasError:
        return []
    return [context.name for context in contexts.contexts if context.name.startswith(incomplete)]


def _names(ctx: Any, entity_type: str, incomplete: str) -> list[str]:
    """Return the names of a type that begin so, from the store that the command line chooses.

    The command line counts as far as it is typed.
    """
    from kafka_quotas.cli.completion.stored_names import TypedStore, stored_names  # noqa: PLC0415 - only completing pays

    typed = {} if ctx is None else ctx.params
    options = TypedStore(**{name: _text(typed.get(name)) for name in TypedStore.__slots__})
    return [name for name in stored_names(options, entity_type) if name.startswith(incomplete)]


def _text(value: object) -> str | None:
    return None if value is None else str(value)
