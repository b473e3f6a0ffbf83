"""Sweeps: one quota key through a range of values, each step a proposal of its own."""

import re
from dataclasses import dataclass
from typing import Final

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_key import QUOTA_KEYS, QuotaKey, suggest_key
from kafka_quotas.core.model.units import parse_quota_value
from kafka_quotas.core.model.value_format import format_quota_value
from kafka_quotas.pipeline.buckets.proposal import DefaultScope, Proposal

DEFAULT_STEPS: Final = 10
MOST_STEPS: Final = 1000
_RANGE: Final = re.compile(r"(?P<low>[^.]+(?:\.\d[^.]*)?)\.\.(?P<high>.+)")
_HINT: Final = "--sweep producer_byte_rate=1MiB..64MiB, or producer_byte_rate=1MiB,5MiB,20MiB"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """A key and its ascending values."""

    key: QuotaKey
    values: tuple[float, ...]

    def proposals(self, default: DefaultScope, base: Proposal | None = None) -> tuple[Proposal, ...]:
        """Return one proposal for each value, with the default set to it and all other quotas of `base`."""
        return tuple(
            self._step(default.default_entity, value, base or Proposal(name="", entries=())) for value in self.values
        )

    def _step(self, entity: Entity, value: float, base: Proposal) -> Proposal:
        others = tuple((each, quotas) for each, quotas in base.entries if each != entity)
        own = next((dict(quotas) for each, quotas in base.entries if each == entity), {})
        return Proposal(
            name=f"{self.key.name}={format_quota_value(self.key, value)}",
            entries=(*others, (entity, {**own, self.key.name: value})),
            static=base.static,
            later=tuple((from_ms, self._step(entity, value, each)) for from_ms, each in base.later),
        )


def parse_sweep(text: str, *, steps: int = DEFAULT_STEPS) -> Sweep:
    """Parse `KEY=LOW..HIGH` (with steps of equal ratio) or `KEY=A,B,C`.

    A range has `steps` values, both ends included.

    Raises:
        UsageError: The key is not per client, a value is invalid, the range is empty, or the number of steps is out of
            range.
    """
    name, equals, values = text.partition("=")
    key = QUOTA_KEYS.get(name.strip())
    if not equals or key is None or key.for_ip:
        suggested = suggest_key(name)
        hint = f"did you mean {suggested.name}?" if suggested else _HINT
        raise UsageError(f"--sweep {text!r} names no quota key of clients", hint=hint)
    if match := _RANGE.fullmatch(values.strip()):
        low, high = (_value(key, match[end]) for end in ("low", "high"))
        if not low < high:
            raise UsageError(f"--sweep {text!r} is empty: {match['low']} is not below {match['high']}", hint=_HINT)
        return Sweep(key=key, values=_spaced(low, high, steps, whole=key.name.endswith("byte_rate")))
    return Sweep(key=key, values=tuple(sorted({_value(key, each) for each in values.split(",")})))


def _value(key: QuotaKey, text: str) -> float:
    value = parse_quota_value(key, text)
    if not value > 0:
        raise UsageError(f"{key.name} must be above 0, not {text.strip()}", hint=_HINT)
    return value


def _spaced(low: float, high: float, steps: int, *, whole: bool) -> tuple[float, ...]:
    """Return values of equal ratio from low to high, as whole numbers where the key needs them."""
    if not 2 <= steps <= MOST_STEPS:
        raise UsageError(f"a sweep has 2 to {MOST_STEPS} steps, not {steps}")
    factor = (high / low) ** (1 / (steps - 1))
    inner = (low * factor**step for step in range(1, steps - 1))
    values = [low, *(float(round(value)) if whole else float(f"{value:.6g}") for value in inner), high]
    return tuple(sorted(set(values)))
