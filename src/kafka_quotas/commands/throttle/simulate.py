"""A replay of an event file with its totals, and its course over time in a bounded number of points.

A file has JSON lines, or CSV with the columns `t_ms`, `amount` and an optional `op`.
Invariants: files are read line by line, with one event in memory at a time and no line longer than a limit. Every error
names the file and the line. Times are whole milliseconds, amounts finite and not negative (bytes may have units:
`15MB`).
"""

import csv
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, BinaryIO, ClassVar, Final, NamedTuple

from kafka_quotas.commands.throttle.rate import without_noise
from kafka_quotas.core.described import Described
from kafka_quotas.core.errors import InvalidQuotaError, UsageError
from kafka_quotas.core.formats.documents import load_json
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.model.value_format import PERCENT, parse_bytes
from kafka_quotas.core.quotas.simulation import (
    Algorithm,
    Event,
    EventOperation,
    SimulatedDecision,
    full_bucket_ms,
    new_limiter,
    replay,
    usual_operation,
)

COLUMNS: Final = ("t_ms", "amount", "op")
STDIN: Final = "-"
LONGEST_LINE: Final = 65_536
"""Longest line in bytes: an event takes some 50, and a longer line is not read to its end."""

_LARGEST_TIME_MS: Final = 2**53
_HINT: Final = 'a line of JSON is {"t_ms": 0, "amount": 5000000}, a CSV file begins with t_ms,amount'
_PLAIN: Final = re.compile(r"[0-9]{1,300}(?:\.[0-9]{1,300})?", re.ASCII)
"""Most figures, which have no unit and need no exact arithmetic."""
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,17}", re.ASCII)


class EventFormat(StrEnum):
    """The two formats of an event file."""

    JSONL = "jsonl"
    CSV = "csv"


_BY_SUFFIX: Final = {
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), EventFormat.JSONL),
    ".csv": EventFormat.CSV,
}


class _BadEventError(Exception):
    """The fault of one line, to which the reader adds the place."""


def read_events(
    name: str, *, form: EventFormat | None = None, allowed: Sequence[EventOperation] = tuple(EventOperation)
) -> Iterator[Event]:
    """Yield the events of a file in its order, reading it as they are consumed.

    The name `-` is standard input. Without a form, the suffix (.jsonl, .ndjson, .json, .csv) or else the first
    character decides.
    """
    label = "standard input" if name == STDIN else name
    try:
        if name == STDIN:
            yield from _events(sys.stdin.buffer, label, form, allowed)
            return
        with Path(name).open("rb") as file:
            yield from _events(file, label, form or _BY_SUFFIX.get(Path(name).suffix.lower()), allowed)
    except OSError as error:
        raise UsageError(f"can't read {label}: {error.strerror or error}", hint="check the name of the file") from error


def _events(file: BinaryIO, label: str, form: EventFormat | None, allowed: Sequence[EventOperation]) -> Iterator[Event]:
    lines = _lines(file, label)
    first = next(lines, None)
    if first is None:
        raise UsageError(f"{label} has no events", hint=_HINT)
    form = form or (EventFormat.JSONL if first[1].startswith(("{", "[")) else EventFormat.CSV)
    read: Callable[[str], Mapping[str, object]] = _json_row
    if form is EventFormat.CSV:
        try:
            names = [name.strip() for name in _fields(first[1])]
            _check_names(names)
        except _BadEventError as error:
            hint = "the first line names the columns: t_ms,amount[,op]"
            raise UsageError(f"{label}, line {first[0]}: {error}", hint=hint) from error
        read = partial(_csv_row, names)
    else:
        lines = chain((first,), lines)
    for number, text in lines:
        try:
            row = read(text)
            t_ms, amount = _time_ms(row["t_ms"]), _amount(row["amount"])
            yield Event(t_ms=t_ms, amount=amount, operation=_operation(row.get("op"), allowed))
        except _BadEventError as error:
            raise UsageError(f"{label}, line {number}: {error}", hint=_HINT) from error


def _lines(file: BinaryIO, label: str) -> Iterator[tuple[int, str]]:
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


def _json_row(text: str) -> Mapping[str, object]:
    try:
        value = load_json(text)
    except json.JSONDecodeError as error:
        raise _BadEventError(f"not JSON: {error.msg} at column {error.colno}") from error
    except ValueError as error:
        raise _BadEventError("not JSON: figures or depth") from error
    if not isinstance(value, dict):
        raise _BadEventError("not a JSON object with t_ms and amount")
    _check_names(list(value))
    return value


def _csv_row(names: Sequence[str], text: str) -> Mapping[str, object]:
    fields = _fields(text)
    if len(fields) != len(names):
        raise _BadEventError(f"{len(fields)} fields under {len(names)} columns")
    row: dict[str, object] = dict(zip(names, fields, strict=True))
    return {**row, "op": row.get("op") or None}


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


_SIGNS: Final = {EventOperation.CHECK: 0, EventOperation.UNRECORD: -1}
"""By which factor an event adds to the total, 1 for other operations."""
MOST_POINTS: Final = 2000
"""Upper bound of the points of a course, which has at least half as many after as many decisions."""


@dataclass(slots=True, kw_only=True)
class SimulationSummary:
    """The running totals of a replay."""

    DOCUMENT: ClassVar = (
        "decisions admitted refused delayed amount total_delay_ms longest_delay_ms highest_level first_ms last_ms "
        "mean_rate"
    )
    least_ms: int
    """The shortest time that a rate is over: one sample."""
    decisions: int = 0
    admitted: int = 0
    delayed: int = 0
    added: float = 0.0
    total_delay_ms: int = 0
    longest_delay_ms: int = 0
    highest: float = -math.inf
    first_ms: int = 0
    last_ms: int = 0
    end_ms: int = 0
    """The end of the last delay."""

    def add(self, decision: SimulatedDecision) -> None:
        """Add a decision to the totals."""
        outcome, delay_ms = decision.outcome, max(decision.outcome.throttle_ms, 0)
        if not self.decisions:
            self.first_ms = self.last_ms = self.end_ms = decision.t_ms
        self.decisions += 1
        self.delayed += delay_ms > 0
        self.total_delay_ms += delay_ms
        self.longest_delay_ms = max(self.longest_delay_ms, delay_ms)
        self.highest = max(self.highest, outcome.level, outcome.after)
        self.last_ms = max(self.last_ms, decision.t_ms)
        self.end_ms = max(self.end_ms, decision.t_ms + delay_ms)
        if outcome.admitted:
            self.admitted += 1
            self.added += decision.amount * _SIGNS.get(decision.operation, 1)

    @property
    def refused(self) -> int:
        """How many decisions refused."""
        return self.decisions - self.admitted

    @property
    def amount(self) -> float:
        """The amount that was admitted."""
        return without_noise(self.added)

    @property
    def highest_level(self) -> float:
        """The highest rate, or the most tokens, before or after any decision."""
        return without_noise(self.highest)

    @property
    def mean_rate(self) -> float:
        """The amount by the time from the first decision to the end of the last delay."""
        return without_noise(self.added / (max(self.end_ms - self.first_ms, self.least_ms) / 1000))


class DecisionRow(NamedTuple):
    """One decision of a replay, as machines get it."""

    t_ms: int
    due_ms: int
    amount: float
    op: EventOperation
    attempt: int
    verdict: Annotated[str, Described(choices=("admitted", "delayed", "refused"))]
    level: float
    after: float
    window_ms: int | None
    throttle_ms: int


def decision_row(decision: SimulatedDecision) -> DecisionRow:
    """Return the row of a decision."""
    outcome = decision.outcome
    verdict = "refused" if not outcome.admitted else "delayed" if outcome.throttle_ms > 0 else "admitted"
    return DecisionRow(
        t_ms=decision.t_ms,
        due_ms=decision.due_ms,
        amount=decision.amount,
        op=decision.operation,
        attempt=decision.attempt,
        verdict=verdict,
        level=without_noise(outcome.level),
        after=without_noise(outcome.after),
        window_ms=outcome.window_ms,
        throttle_ms=outcome.throttle_ms,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """A replay: the algorithm and its settings, the decisions, and the totals."""

    DOCUMENT: ClassVar = (
        "algorithm quota unit window.num=window.samples window.size_seconds=window.window_s window.origin=origin "
        "operation closed_loop decisions summary"
    )
    algorithm: Algorithm
    quota: float
    """Bound per second."""
    window: QuotaWindow
    closed_loop: bool = False
    amount_unit: str = ""
    origin: str = ""
    """Where the window came from."""
    decisions: tuple[DecisionRow, ...] = ()
    summary: Annotated[SimulationSummary | None, Described(text="null where a bad line ended the replay")] = None

    @property
    def unit(self) -> str:
        """The unit of the quota: % times seconds has no sign, and per second it is %."""
        return PERCENT if self.amount_unit == PERCENT else f"{self.amount_unit}/s"

    @property
    def operation(self) -> EventOperation:
        """What an event does that does not say."""
        return usual_operation(self.algorithm)

    @property
    def counts_tokens(self) -> bool:
        """Whether levels are tokens and not rates."""
        return self.algorithm is Algorithm.TOKEN_BUCKET


def simulate(simulation: Simulation, events: Iterable[Event]) -> Iterator[SimulatedDecision]:
    """Return the decisions on the events, in step with their consumption."""
    window = simulation.window
    limiter = new_limiter(
        simulation.algorithm, bound=simulation.quota, samples=window.samples, window_ms=window.window_ms
    )
    return replay(
        events,
        limiter,
        usual=simulation.operation,
        origin_ms=full_bucket_ms(samples=window.samples, window_ms=window.window_ms),
        closed_loop=simulation.closed_loop,
    )


class Course:
    """The course of a replay, thinned as it grows by keeping the decision of higher delay or level."""

    def __init__(self) -> None:
        self._points: list[SimulatedDecision] = []
        self._pending: list[SimulatedDecision] = []
        self._stride = 1

    def add(self, decision: SimulatedDecision) -> None:
        """Add a decision to the course."""
        self._pending.append(decision)
        if len(self._pending) == self._stride:
            self._points.append(_standing_out(self._pending))
            self._pending.clear()
        if len(self._points) == MOST_POINTS:
            self._points = [_standing_out(self._points[at : at + 2]) for at in range(0, MOST_POINTS, 2)]
            self._stride *= 2

    def points(self) -> list[SimulatedDecision]:
        """Return the decisions that were kept, in the order of time."""
        rest = [_standing_out(self._pending)] if self._pending else []
        return sorted([*self._points, *rest], key=lambda point: point.t_ms)


def _standing_out(points: list[SimulatedDecision]) -> SimulatedDecision:
    return max(points, key=lambda point: (max(point.outcome.throttle_ms, 0), abs(point.outcome.after)))
