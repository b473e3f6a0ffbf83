"""Calculations written out: every figure with its arithmetic.

Invariants: values are plain numbers in the unit named beside them; the arithmetic is for people and may be rounded.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """One figure of a calculation, with its arithmetic, by position like the row of a table."""

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


@dataclass(frozen=True, slots=True)
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
