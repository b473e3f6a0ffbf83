"""Calculations written out: every figure with its arithmetic.

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
    """One figure of a calculation, with its arithmetic."""

    name: str
    arithmetic: str
    value: float
    unit: str
    """Unit of the value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calculation:
    """One way to calculate, with its steps."""

    method: str
    """Short name for machines."""
    title: str
    """Name for people."""
    source: str
    """Source of the rule."""
    steps: tuple[Step, ...]
    delay_ms: int | None = None
    """Resulting delay in ms, None where the calculation has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A figure that an answer starts from."""

    name: str
    value: float
    unit: str
    origin: str = ""
    """Source of the figure, empty where it was typed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalculatorAnswer:
    """The answer of a calculator command: given figures, calculations, and notes on them."""

    given: tuple[Given, ...]
    calculations: tuple[Calculation, ...]
    notes: tuple[str, ...] = ()


def quantity(value: float, unit: str) -> str:
    """Format a value with its unit for people, with at most six digits.

    Examples are `60 MB`, `2 s`, `0.1 %`, `500 partitions`.
    """
    if unit == MS:
        return format_duration_ms(value)
    if unit in (BYTES, BYTES_PER_SECOND):
        return format_bytes(value) + unit.removeprefix(BYTES)
    return f"{format_number(float(f'{value:.6g}'))} {unit}"
