"""A writer of stored quotas as YAML, JSON or TOML that reads back to exactly the same quotas.

Contract: one entry per line, sorted by the caller, so that files compare well line by line. The largest value of a key
is `unlimited`, other figures are plain numbers that read back as the same double. Entries with values that this program
refuses carry `invalid: true`. Names are quoted unless every reader takes them for plain words.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final

from kafka_quotas.core.changes.plan import key_rank
from kafka_quotas.core.changes.validation import our_refusals
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.java import double_text
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_key import STORED_KEYS
from kafka_quotas.core.model.value_format import UNLIMITED, format_number
from kafka_quotas.core.quota_files.declarations import DEFAULT_SUFFIX, QUOTAS_SCHEMA

Quotas = Mapping[str, float]
DeclaredQuotas = Mapping[str, float | None]
"""Quotas of which some are declared as not set."""

_PLAIN_WORD: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_TAKEN_WORDS: Final = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}
"""Words that some YAML reader takes for a value."""


class FileFormat(StrEnum):
    """The formats of quota files."""

    YAML = "yaml"
    JSON = "json"
    TOML = "toml"


def file_text(entries: Iterable[tuple[Entity, DeclaredQuotas]], form: FileFormat) -> Iterator[str]:
    """Yield the text of a file with these entries, piece by piece."""
    match form:
        case FileFormat.YAML:
            yield from _yaml(entries)
        case FileFormat.JSON:
            yield from _json(entries)
        case FileFormat.TOML:
            yield from _toml(entries)


def is_refused(entity: Entity, quotas: DeclaredQuotas) -> bool:
    """Return whether this program would refuse to send these quotas to a store."""
    return our_refusals(entity, quotas) is not None


def _yaml(entries: Iterable[tuple[Entity, DeclaredQuotas]]) -> Iterator[str]:
    yield f"schema: {QUOTAS_SCHEMA}\nentries:"
    empty = True
    for entity, quotas in entries:
        names = ", ".join(f"{kind}: {'null' if name is None else yaml_word(name)}" for kind, name in entity.parts)
        values = ", ".join(f"{yaml_word(key)}: {_yaml_value(key, value)}" for key, value in _sorted(quotas))
        mark = ", invalid: true" if is_refused(entity, quotas) else ""
        yield f"\n  - {{entity: {{{names}}}, quotas: {{{values}}}{mark}}}"
        empty = False
    yield " []\n" if empty else "\n"


def _json(entries: Iterable[tuple[Entity, DeclaredQuotas]]) -> Iterator[str]:
    yield f'{{\n  "schema": {json.dumps(QUOTAS_SCHEMA)},\n  "entries": ['
    separator = "\n    "
    for entity, quotas in entries:
        names = json.dumps(entity.to_mapping(), ensure_ascii=False)
        values = ", ".join(f"{json.dumps(key)}: {_json_value(key, value)}" for key, value in _sorted(quotas))
        mark = ', "invalid": true' if is_refused(entity, quotas) else ""
        yield f'{separator}{{"entity": {names}, "quotas": {{{values}}}{mark}}}'
        separator = ",\n    "
    yield "]\n}\n" if separator == "\n    " else "\n  ]\n}\n"


def _toml(entries: Iterable[tuple[Entity, DeclaredQuotas]]) -> Iterator[str]:
    yield f'schema = "{QUOTAS_SCHEMA}"\nentries = ['
    for entity, quotas in entries:
        names = ", ".join(
            f"{kind}{DEFAULT_SUFFIX} = true" if name is None else f"{kind} = {escaped(name)}"
            for kind, name in entity.parts
        )
        values = ", ".join(f"{_toml_key(key)} = {_toml_value(key, value)}" for key, value in _sorted(quotas))
        mark = ", invalid = true" if is_refused(entity, quotas) else ""
        yield f"\n  {{entity = {{{names}}}, quotas = {{{values}}}{mark}}},"
    yield "\n]\n"


def _sorted(quotas: DeclaredQuotas) -> list[tuple[str, float | None]]:
    return sorted(quotas.items(), key=lambda item: key_rank(item[0]))


def plain_figure(key: str, value: float) -> str:
    """Return a value as a number, the largest one of its key in all digits."""
    text = _value(key, value)
    return str(STORED_KEYS[key].unlimited) if text == UNLIMITED else text


def _value(key: str, value: float | None) -> str:
    if value is None:
        return "null"
    known = STORED_KEYS.get(key)
    if known is not None and value == float(known.unlimited):
        return UNLIMITED
    if not math.isfinite(value):
        return double_text(value)
    text = format_number(value)
    # -0.0 and long fractions: repr keeps the sign and stays short.
    return repr(value) if "." in text or (value == 0 and math.copysign(1, value) < 0) else text


def _yaml_value(key: str, value: float | None) -> str:
    text = _value(key, value)
    return text if value is None or math.isfinite(value) else escaped(text)


def _json_value(key: str, value: float | None) -> str:
    text = _value(key, value)
    return json.dumps(text) if text == UNLIMITED or not (value is None or math.isfinite(value)) else text


def _toml_value(key: str, value: float | None) -> str:
    """Return a figure, quoted if it is whole and beyond 64 bits, which TOML can't hold."""
    text = _value(key, value)
    if value is None:
        raise UsageError(f"TOML has no null, which {key} would need", hint="write it as YAML or JSON")
    fits = text != UNLIMITED and math.isfinite(value) and (abs(value) < 2**63 or "." in text or "e" in text)
    return text if fits else f'"{text}"'


def _toml_key(key: str) -> str:
    return key if _PLAIN_WORD.fullmatch(key) and "." not in key else escaped(key)


def yaml_word(text: str) -> str:
    """Return a text as a value in YAML, quoted if some reader would take it for anything else."""
    if _PLAIN_WORD.fullmatch(text) and text.lower() not in _TAKEN_WORDS:
        return text
    return escaped(text)


def escaped(text: str) -> str:
    """Return a text between double quotes, with escapes that YAML, JSON, TOML and HCL share."""
    return '"' + "".join(map(_letter, text)) + '"'


def _letter(letter: str) -> str:
    if letter in '"\\':
        return f"\\{letter}"
    if letter.isprintable() and letter != "\ufeff":
        return letter
    return f"\\u{ord(letter):04x}" if ord(letter) < 0x10000 else f"\\U{ord(letter):08x}"
