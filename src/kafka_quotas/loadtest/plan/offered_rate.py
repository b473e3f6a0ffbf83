"""The load that a client offers: as much as possible, bytes, records, or a multiple of its quota."""

import re
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from kafka_quotas.core.errors import InvalidQuotaError, UsageError
from kafka_quotas.core.model.units import parse_bytes, parse_duration_ms

_HINT = "examples: max, 5MB/s, 200rec/s, 10req/s, 5conn/s, 2x-quota"
_RECORDS = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?:rec|records|req|requests|conn|connections)(?:/s|ps)", re.ASCII)
_MULTIPLE = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*x-quota", re.ASCII)


class RateKind(Enum):
    """The unit of an offered rate."""

    MAX = "max"
    BYTES = "bytes/s"
    RECORDS = "arrivals/s"
    QUOTA_MULTIPLE = "x quota"


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedRate:
    """A rate as it was requested."""

    kind: RateKind
    figure: Fraction
    """The rate, 0 with `MAX`."""

    def arrivals_per_second(self, *, cost: int, quota: float | None) -> Fraction | None:
        """Return the arrivals per second, None for as many as possible.

        Args:
            cost: The cost of one arrival in the unit of the quota: a record its bytes, a request that creates topics
                their partitions, a connection 1.
            quota: The quota, None for none.

        Raises:
            UsageError: The rate is a multiple of a quota, and there is no quota.
        """
        match self.kind:
            case RateKind.MAX:
                return None
            case RateKind.RECORDS:
                return self.figure
            case RateKind.BYTES:
                return self.figure / cost
            case RateKind.QUOTA_MULTIPLE:
                if quota is None:
                    raise UsageError("a rate in multiples of the quota needs a quota", hint="give --quota or --store")
                return self.figure * Fraction(quota) / cost

    def scaled(self, factor: float) -> "OfferedRate":
        """Return the rate times a factor, unless it follows a quota or is as much as possible."""
        if self.kind in (RateKind.MAX, RateKind.QUOTA_MULTIPLE):
            return self
        return OfferedRate(kind=self.kind, figure=self.figure * Fraction(factor).limit_denominator(1_000_000))


AS_FAST_AS_POSSIBLE = OfferedRate(kind=RateKind.MAX, figure=Fraction(0))
NO_LOAD = OfferedRate(kind=RateKind.RECORDS, figure=Fraction(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A time in which a client's rate moves evenly to a target. A stage of 0 s jumps to it."""

    duration_s: float
    target: OfferedRate


def parse_stage(text: str) -> Stage:
    """Parse a stage such as `30s:5MB/s`, `2min:2x-quota` or `10s:0`.

    Raises:
        UsageError: The text is no stage.
    """
    duration, colon, target = text.partition(":")
    if not colon:
        raise UsageError(f"not a stage: {text!r}", hint="write TIME:RATE, such as 30s:5MB/s")
    return Stage(duration_s=float(parse_duration_ms(duration.strip()) / 1000), target=parse_stage_target(target))


def parse_stage_target(text: str) -> OfferedRate:
    """Parse the rate that a stage leads to, which may be 0.

    Raises:
        UsageError: The text is no rate, or is `max`, which nothing leads to evenly.
    """
    if text.strip() == "0":
        return NO_LOAD
    target = parse_offered_rate(text)
    if target.kind is RateKind.MAX:
        raise UsageError("a stage needs a rate to lead to, not max", hint="examples: 5MB/s, 200rec/s, 2x-quota, 0")
    return target


def parse_offered_rate(text: str) -> OfferedRate:
    """Parse a rate such as `max`, `5MB/s`, `200rec/s` or `2x-quota`.

    Raises:
        UsageError: The text is no rate, or the rate is 0.
    """
    stripped = text.strip()
    if stripped.lower() == "max":
        return AS_FAST_AS_POSSIBLE
    for pattern, kind in ((_RECORDS, RateKind.RECORDS), (_MULTIPLE, RateKind.QUOTA_MULTIPLE)):
        match = pattern.fullmatch(stripped)
        if match:
            return _positive(kind, Fraction(match["number"]), text)
    try:
        return _positive(RateKind.BYTES, parse_bytes(stripped), text)
    except InvalidQuotaError as error:
        raise UsageError(f"not a rate: {text!r}", hint=error.hint if "bits" in error.message else _HINT) from error


def _positive(kind: RateKind, figure: Fraction, text: str) -> OfferedRate:
    if figure <= 0:
        raise UsageError(f"a rate must be above 0, not {text!r}", hint=_HINT)
    return OfferedRate(kind=kind, figure=figure)
