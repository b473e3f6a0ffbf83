"""Values before and after a change, as they are shown."""

from kafka_quotas.cli.json_text import Json
from kafka_quotas.cli.quantity import in_words, plain
from kafka_quotas.core.plan import PlannedChange


def told_value(key: str, value: float | None) -> str:
    """A value in words, `not set` where there is none."""
    return "not set" if value is None else in_words(key, value)


def plain_value(key: str, value: float | None) -> int | float | None:
    """A value as a plain number."""
    return None if value is None else plain(key, value)


def change_document(change: PlannedChange) -> dict[str, Json]:
    """A change as JSON shows it."""
    return {
        "entity": change.entity.to_mapping(),
        "key": change.key,
        "old": plain_value(change.key, change.old),
        "new": plain_value(change.key, change.new),
    }
