"""Calculations written out: every figure beside the arithmetic that gives it.

Invariants: values are plain numbers in the unit named beside them; the arithmetic is for people and may be rounded.
"""

from dataclasses import dataclass
from typing import Final

from kafka_quotas.core.model.time_format import format_duration_ms
from kafka_quotas.core.model.units import format_bytes, format_number

MS: Final = "ms"
BYTES: Final = "bytes"
BYTES_PER_SECOND: Final = "bytes/s"
PERCENT: Final = "%"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One figure: its name, the arithmetic behind it, its value and the unit of that."""

    name: str
    arithmetic: str
    value: float
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Calculation:
    """One way to calculate: a short `method` for machines, a title for people, the rule's source, and its steps.

    `delay_ms` is the delay that results, None where none is asked for.
    """

    method: str
    title: str
    source: str
    steps: tuple[Step, ...]
    delay_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A figure that the answer starts from, with its unit and where it came from (empty: it was typed)."""

    name: str
    value: float
    unit: str
    origin: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalculatorAnswer:
    """What a calculator command answers: the figures it started from, its calculations, and what to know about them."""

    given: tuple[Given, ...]
    calculations: tuple[Calculation, ...]
    notes: tuple[str, ...] = ()


def quantity(value: float, unit: str) -> str:
    """A value with its unit for people, six digits at most: `60 MB`, `2 s`, `0.1 %`, `500 partitions`."""
    if unit == MS:
        return format_duration_ms(value)
    if unit in (BYTES, BYTES_PER_SECOND):
        return format_bytes(value) + unit.removeprefix(BYTES)
    return f"{format_number(float(f'{value:.6g}'))} {unit}"
