"""Calculations written out: every figure with its arithmetic.

Invariants: values are plain numbers in the unit named beside them; the arithmetic is for people and may be rounded.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from kafka_quotas.core.described import Described, Sentences


@dataclass(frozen=True, slots=True)
class Step:
    """One figure of a calculation, with its arithmetic, by position like the row of a table."""

    DOCUMENT: ClassVar = "figure=name arithmetic value=rounded unit"
    name: str
    arithmetic: str
    value: float
    unit: str
    """Unit of the value."""

    @property
    def rounded(self) -> float:
        """The value without the noise of a sum of doubles."""
        return without_noise(self.value)


def without_noise(value: float) -> float:
    """Round the value to twelve digits.

    Beyond the thirteenth digit a sum of doubles holds rounding errors only.
    """
    return float(f"{value:.12g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Calculation:
    """One way to calculate, with its steps."""

    DOCUMENT: ClassVar = "method title source delay_ms steps"
    method: str
    """Short name for machines."""
    title: str
    """Name for people."""
    source: str
    """Source of the rule."""
    steps: tuple[Step, ...]
    delay_ms: Annotated[int | None, Described(text="null for a method that yields no delay")] = None


@dataclass(frozen=True, slots=True)
class Given:
    """A figure that an answer starts from."""

    DOCUMENT: ClassVar = "name value unit"
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
    notes: Sentences = ()
