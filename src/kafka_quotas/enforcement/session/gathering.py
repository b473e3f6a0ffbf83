"""The memory that whole frames may take while they are gathered: one budget for all connections of a daemon.

A frame that has to be seen as a whole is given its length before its first byte is taken; where there is no room its
connection is left unread until there is, first come, first served. A frame longer than the whole budget gets its turn
when no other is gathered. Frames of one read or less take no part: any connection may hold that much anyway, and so
small requests never wait behind large ones. Who does not finish in time while others wait is closed: room that is
announced but not used would be held for ever.

No I/O and no clock: the shell is told by `on_room`, and asks for `overdue` now and then.
**Source:** `queued.max.request.bytes` of a broker (KIP-72).
"""

from collections import deque
from collections.abc import Callable
from typing import Final

SMALL_BYTES: Final = 64 * 1024
"""Longest frame that needs no room."""
GATHER_MS: Final = 10_000
"""How long a frame may be gathered while others wait for room."""


class GatherBudget:
    """How much is gathered at the moment, and who waits for room."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._gathering: dict[GatherShare, int] = {}
        """Who gathers since when (ms), longest first."""
        self._waiting: deque[GatherShare] = deque()
        self.used_bytes = 0

    def share(self) -> "GatherShare":
        """Make the share of one direction of one connection."""
        return GatherShare(self)

    def overdue(self, now_ms: int) -> list["GatherShare"]:
        """Return those who gather for too long, if anybody waits for their room."""
        if not self._waiting:
            return []
        return [share for share, since_ms in self._gathering.items() if now_ms - since_ms >= GATHER_MS]

    def take(self, share: "GatherShare", now_ms: int) -> bool:
        """Return whether a share has room for its frame by now; one that has none is in line for it."""
        if share in self._gathering:
            return True
        if share.is_waiting:
            return False
        if self._waiting or not self._fits(share):
            share.is_waiting = True
            self._waiting.append(share)
            return False
        self._give(share, now_ms)
        return True

    def give_back(self, share: "GatherShare", now_ms: int) -> None:
        """Take back what a share has, or no longer waits for, and give room to those in line."""
        if share.is_waiting:
            share.is_waiting = False
            self._waiting.remove(share)
        if self._gathering.pop(share, None) is not None:
            self.used_bytes -= share.length
        while self._waiting and self._fits(self._waiting[0]):
            first = self._waiting.popleft()
            first.is_waiting = False
            self._give(first, now_ms)
            first.on_room()

    def _fits(self, share: "GatherShare") -> bool:
        return not self._gathering or self.used_bytes + share.length <= self._limit_bytes

    def _give(self, share: "GatherShare", now_ms: int) -> None:
        self.used_bytes += share.length
        self._gathering[share] = now_ms


class GatherShare:
    """One direction of one connection: it gathers one frame at a time, or waits to."""

    __slots__ = ("_budget", "is_waiting", "length", "on_overdue", "on_room")

    def __init__(self, budget: GatherBudget) -> None:
        self._budget = budget
        self.length = 0
        """Of the frame that is gathered or waits; 0 for none that needs room."""
        self.is_waiting = False
        self.on_room: Callable[[], None] = _nothing
        """Is called when a frame that waited has room; not to go on at once, for another connection is at work."""
        self.on_overdue: Callable[[], None] = _nothing
        """For whoever looks for those that are overdue."""

    def take(self, length: int, now_ms: int) -> bool:
        """Return whether a frame may be gathered; else the same is to be asked again after `on_room`."""
        if length <= SMALL_BYTES:
            return True
        self.length = length
        return self._budget.take(self, now_ms)

    def end(self, now_ms: int) -> None:
        """Give back the room of a frame that was dealt with, or is not wanted any more."""
        if self.length:
            self._budget.give_back(self, now_ms)
            self.length = 0


def _nothing() -> None:
    """Do nothing: nobody wants to know."""
