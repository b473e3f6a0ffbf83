"""The changes that --add-config, --add-config-file and --delete-config ask for.

Invariants: a key is named once; every key is one of Kafka's own, a draft's or misspelt name is refused with the right
one; values carry units and are exact.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from kafka_quotas.core.errors import InvalidQuotaError, UsageError
from kafka_quotas.core.formats.documents import read_property_pairs
from kafka_quotas.core.model.quota_key import QUOTA_KEYS, STORED_KEYS, QuotaKey, suggest_stored_key
from kafka_quotas.core.model.value_format import parse_quota_value

_EXAMPLE = "for example producer_byte_rate=10MiB,consumer_byte_rate=20MiB"


def parse_changes(
    *, add: Sequence[str], add_file: Path | None, delete: Sequence[str], allow_invalid: bool = False
) -> dict[str, float | None]:
    """Map each key's name to its new value (in the unit of the key), or to None to remove it.

    The keys are in the order of listings. With `allow_invalid` a value may be any double.

    Raises:
        UsageError: There is nothing to change, a key is unknown or named twice, or a value can't be parsed.
    """
    changes: dict[str, float | None] = {}
    for key, text in _assignments(add, add_file):
        _refuse_twice(key.name, changes)
        changes[key.name] = _value(key, text, allow_invalid=allow_invalid)
    for name in _names(delete):
        _refuse_twice(name, changes)
        changes[name] = None
    if not changes:
        raise UsageError(
            "nothing to change", hint="--add-config KEY=VALUE sets a quota, --delete-config KEY removes one"
        )
    return dict(sorted(changes.items(), key=lambda change: _rank(change[0])))


def _rank(name: str) -> tuple[int, str]:
    """Return the sort key of a quota key: Kafka's own in the order of their table, then the rest by name."""
    order = list(STORED_KEYS)
    return (order.index(name), "") if name in STORED_KEYS else (len(order), name)


def _assignments(add: Sequence[str], add_file: Path | None) -> Iterator[tuple[QuotaKey, str]]:
    for text in add:
        for piece in _pieces("--add-config", text):
            name, equals, value = piece.partition("=")
            if not equals:
                in_figure = piece.isdecimal() and "," in text
                hint = "write figures without separators of thousands: 1000 or 1k" if in_figure else _EXAMPLE
                raise UsageError(f"not KEY=VALUE: {piece!r}", hint=hint)
            # kafka-configs takes brackets around values and drops them
            yield _known_key(name.strip()), value.strip().removeprefix("[").removesuffix("]")
    if add_file is not None:
        for name, value in read_property_pairs(add_file):
            yield _known_key(name), value


def _names(delete: Sequence[str]) -> Iterator[str]:
    for text in delete:
        for name in _pieces("--delete-config", text):
            if name in STORED_KEYS or suggest_stored_key(name) is None:
                yield name  # a name unlike any key may be stored all the same, and must be removable
            else:
                _known_key(name)


def _pieces(option: str, text: str) -> list[str]:
    pieces = [piece.strip() for piece in text.split(",")]
    if len(pieces) > 1 and not pieces[-1]:
        pieces.pop()
    if not all(pieces):
        raise UsageError(f"{option} has an empty part: {text!r}", hint="is the shell variable behind it set?")
    return pieces


def _known_key(name: str) -> QuotaKey:
    key = STORED_KEYS.get(name)
    if key is None:
        meant = suggest_stored_key(name)
        hint = f"did you mean {meant.name}?" if meant else f"the keys are {', '.join(QUOTA_KEYS)}"
        raise InvalidQuotaError(f"unknown quota key: {name!r}", hint=hint)
    return key


def _refuse_twice(name: str, changes: dict[str, float | None]) -> None:
    if name in changes:
        raise UsageError(f"{name} is named twice", hint="set or remove each key once per command")


def _value(key: QuotaKey, text: str, *, allow_invalid: bool) -> float:
    if not text.strip():
        raise InvalidQuotaError(
            f"{key.name} has no value",
            hint=f"is the shell variable behind it set? --delete-config {key.name} removes the quota",
        )
    try:
        return parse_quota_value(key, text)
    except InvalidQuotaError:
        if not allow_invalid:
            raise
        from kafka_quotas.core.java import parse_double  # noqa: PLC0415 - only --allow-invalid needs it

        return parse_double(text)
