"""Event files for a replay: JSON lines or CSV with the columns `t_ms`, `amount` and an optional `op`.

Invariants: files are read line by line, with one event in memory at a time and no line longer than a limit. Every error
names the file and the line. Times are whole milliseconds, amounts finite and not negative (bytes may have units:
`15MB`).
"""

import csv
import json
import math
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO, Final

from kafka_quotas.core.errors import InvalidQuotaError, UsageError
from kafka_quotas.core.formats.documents import load_json
from kafka_quotas.core.model.units import parse_bytes
from kafka_quotas.core.quotas.simulation import Event, EventOperation

COLUMNS: Final = ("t_ms", "amount", "op")
STDIN: Final = "-"
LONGEST_LINE: Final = 65_536
"""Longest line in bytes: an event takes some 50, and a longer line is not read to its end."""

_LARGEST_TIME_MS: Final = 2**53
_HINT: Final = 'a line of JSON is {"t_ms": 0, "amount": 5000000}, a CSV file begins with t_ms,amount'
_PLAIN: Final = re.compile(r"[0-9]{1,300}(?:\.[0-9]{1,300})?", re.ASCII)
"""Most figures, which have no unit and need no exact arithmetic."""
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,17}", re.ASCII)


_Parse = Callable[[str, Sequence[EventOperation]], Event]


class EventFormat(StrEnum):
    """The two formats of an event file."""

    JSONL = "jsonl"
    CSV = "csv"


class _BadEventError(Exception):
    """The fault of one line, to which the reader adds the place."""


def read_events(
    name: str, *, form: EventFormat | None = None, allowed: Sequence[EventOperation] = tuple(EventOperation)
) -> Iterator[Event]:
    """Yield the events of a file in its order, reading it as they are consumed.

    The name `-` is standard input. Without a form, the suffix (.jsonl, .ndjson, .json, .csv) or else the first
    character decides.

    Raises:
        UsageError: The file can't be read, or a line is no event; the message names the place.
    """
    label = "standard input" if name == STDIN else name
    try:
        if name == STDIN:
            yield from _events(sys.stdin.buffer, label, form, allowed)
            return
        with Path(name).open("rb") as file:
            yield from _events(file, label, form or _form_of_name(name), allowed)
    except OSError as error:
        raise UsageError(f"can't read {label}: {error.strerror or error}", hint="check the name of the file") from error


def _form_of_name(name: str) -> EventFormat | None:
    suffix = Path(name).suffix.lower()
    if suffix in (".jsonl", ".ndjson", ".json"):
        return EventFormat.JSONL
    return EventFormat.CSV if suffix == ".csv" else None


def _events(file: BinaryIO, label: str, form: EventFormat | None, allowed: Sequence[EventOperation]) -> Iterator[Event]:
    lines = _lines(file, label)
    first = next(lines, None)
    if first is None:
        raise UsageError(f"{label} has no events", hint=_HINT)
    if form is None:
        form = EventFormat.JSONL if first[1].startswith(("{", "[")) else EventFormat.CSV
    parse: _Parse = _parse_json
    if form is EventFormat.CSV:
        parse = _csv_parser(first[1], f"{label}, line {first[0]}")
        first = next(lines, None)
    while first is not None:
        number, text = first
        try:
            yield parse(text, allowed)
        except _BadEventError as error:
            raise UsageError(f"{label}, line {number}: {error}", hint=_HINT) from error
        first = next(lines, None)


def _lines(file: BinaryIO, label: str) -> Iterator[tuple[int, str]]:
    """Yield every line that is not blank, without its end, and its number from 1."""
    number = 0
    while raw := file.readline(LONGEST_LINE + 1):
        number += 1
        if len(raw) > LONGEST_LINE:
            raise UsageError(f"{label}, line {number}: longer than {LONGEST_LINE} bytes", hint=_HINT)
        try:
            text = raw.decode("utf-8-sig" if number == 1 else "utf-8").strip()
        except UnicodeDecodeError as error:
            raise UsageError(f"{label}, line {number}: not UTF-8 text", hint=_HINT) from error
        if text:
            yield number, text


def _parse_json(text: str, allowed: Sequence[EventOperation]) -> Event:
    try:
        value = load_json(text)
    except ValueError as error:
        raise _BadEventError(f"not JSON: {_reason(error)}") from error
    if not isinstance(value, dict):
        raise _BadEventError("not a JSON object with t_ms and amount")
    _check_names(list(value))
    return _event(value["t_ms"], value["amount"], value.get("op"), allowed)


def _reason(error: Exception) -> str:
    return f"{error.msg} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else "figures or depth"


def _csv_parser(header: str, place: str) -> _Parse:
    """Return the parser for lines of CSV with the columns of the header."""
    try:
        names = [name.strip() for name in _fields(header)]
        _check_names(names)
    except _BadEventError as error:
        raise UsageError(f"{place}: {error}", hint="the first line names the columns: t_ms,amount[,op]") from error

    def parse(text: str, allowed: Sequence[EventOperation]) -> Event:
        fields = _fields(text)
        if len(fields) != len(names):
            raise _BadEventError(f"{len(fields)} fields under {len(names)} columns")
        row = dict(zip(names, fields, strict=True))
        return _event(row["t_ms"], row["amount"], row.get("op") or None, allowed)

    return parse


def _fields(text: str) -> list[str]:
    if '"' not in text:
        return text.split(",")  # three times as fast, and a file may have millions of lines
    try:
        return next(csv.reader([text], strict=True))
    except csv.Error as error:
        raise _BadEventError(f"not CSV: {error}") from error


def _check_names(names: list[str]) -> None:
    missing = [name for name in COLUMNS[:2] if name not in names]
    if missing:
        raise _BadEventError(f"no {' and no '.join(missing)}")
    unknown = [name for name in names if name not in COLUMNS]
    if unknown:
        raise _BadEventError(f"unknown column {unknown[0][:40]!r}; there are {', '.join(COLUMNS)}")
    if len(set(names)) != len(names):
        raise _BadEventError("a column is named twice")


def _event(time: object, amount: object, operation: object, allowed: Sequence[EventOperation]) -> Event:
    return Event(t_ms=_time_ms(time), amount=_amount(amount), operation=_operation(operation, allowed))


def _time_ms(value: object) -> int:
    if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _LARGEST_TIME_MS:
        raise _BadEventError(f"t_ms must be a whole number of milliseconds, not {_shown(value)}")
    return value


def _amount(value: object) -> float:
    try:
        if isinstance(value, str):
            value = float(value) if _PLAIN.fullmatch(value) else float(parse_bytes(value))
        number = math.nan if isinstance(value, bool) or not isinstance(value, int | float) else float(value)
    except (InvalidQuotaError, OverflowError):
        number = math.nan
    if not 0 <= number < math.inf:
        raise _BadEventError(f"amount must be a finite number and not negative, not {_shown(value)}")
    return number


def _operation(value: object, allowed: Sequence[EventOperation]) -> EventOperation | None:
    if value is None:
        return None
    if value not in list(allowed):
        raise _BadEventError(f"op must be one of {', '.join(allowed)}, not {_shown(value)}")
    return EventOperation(str(value))


def _shown(value: object) -> str:
    text = repr(value) if isinstance(value, str | int | float | None) else type(value).__name__
    return text if len(text) <= 40 else text[:37] + "..."
