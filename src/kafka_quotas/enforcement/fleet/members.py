"""The members of a fleet that one of them hears: who lives, who is not trusted and why.

A member is lost when the medium has brought back our own report that was written `LOST_AFTER` intervals after the
member was heard last: a silent medium loses nobody.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kafka_quotas.enforcement.fleet.report import Report

LOST_AFTER: Final = 2.5
"""Intervals of silence after which a member is lost, which a round trip makes three at most."""
WRONG_CLOCK_MS: Final = 10_000
"""Difference of two clocks that is reported."""
MAX_STRANGERS: Final = 100
"""Most members that are remembered as not trusted: anybody may make up more."""
STRANGER_MS: Final = 60_000
"""Time for which one that is not heard any more is remembered."""


@dataclass(slots=True, kw_only=True)
class Member:
    """Another member, as this one hears it."""

    number: int
    name: str
    since_ms: int
    """Time at which it was heard first."""
    heard_ms: int
    """Time at which it was heard last."""
    sequence: int
    """Number of its latest report."""
    heard: int
    """Position up to which it has heard all reports."""
    clock_ms: int
    """How far its clock is ahead of ours, less the time that its report took."""
    signed: bool
    """Whether it signs its reports."""

    @property
    def has_wrong_clock(self) -> bool:
        """Whether its clock and ours differ by more than a report can take."""
        return abs(self.clock_ms) > WRONG_CLOCK_MS


@dataclass(slots=True)
class Stranger:
    """A member that is not trusted."""

    name: str
    reason: str
    heard_ms: int


class Members:
    """The other members by number."""

    def __init__(self, interval_ms: int) -> None:
        self._lost_ms = LOST_AFTER * interval_ms
        self.alive: dict[int, Member] = {}
        self.strangers: dict[int, Stranger] = {}
        """Those that are not trusted, by number."""

    @property
    def count(self) -> int:
        """The number of members, this one included."""
        return len(self.alive) + 1

    @property
    def heard(self) -> int | None:
        """The position up to which every other member has heard all reports, None without others."""
        return min((member.heard for member in self.alive.values()), default=None)

    def hear(self, report: Report, now_ms: int) -> bool:
        """Take note of a report that counts, and return whether its member is new."""
        before = self.alive.get(report.member)
        self.strangers.pop(report.member, None)
        self.alive[report.member] = Member(
            number=report.member,
            name=report.name,
            since_ms=now_ms if before is None else before.since_ms,
            heard_ms=now_ms,
            sequence=report.sequence,
            heard=report.heard,
            clock_ms=report.sent_ms - now_ms,
            signed=report.signed,
        )
        return before is None

    def lose(self, confirmed_ms: int) -> Iterable[Member]:
        """Remove and return the members that were silent for too long.

        Args:
            confirmed_ms: Time at which our latest report that came back was written.
        """
        lost = [each for each in self.alive.values() if confirmed_ms - each.heard_ms >= self._lost_ms]
        for member in lost:
            del self.alive[member.number]
        return lost

    def distrust(self, number: int, name: str, reason: str, now_ms: int) -> bool:
        """Remember why a member is not trusted, and return whether that is new."""
        known = self.strangers.get(number)
        if known is not None:
            known.heard_ms = now_ms
            is_new, known.reason = known.reason != reason, reason
            return is_new
        if len(self.strangers) >= MAX_STRANGERS:
            return False
        self.strangers[number] = Stranger(name or f"{number:016x}", reason, now_ms)
        return True

    def forget_strangers(self, now_ms: int) -> None:
        """Forget those that are not trusted and have ended."""
        for number in [number for number, each in self.strangers.items() if now_ms - each.heard_ms > STRANGER_MS]:
            del self.strangers[number]
