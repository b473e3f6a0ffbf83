"""The memory for frames that are gathered whole: one budget for all connections of a daemon.

A frame that has to be seen whole takes its length from the budget before its first byte is taken; where there is no
room the daemon does not read its connection until there is, first come, first served. A frame longer than the whole
budget gets its turn when no other is gathered. Frames of one read or less take no part: any connection may hold that
much anyway, and small requests never wait for large ones. The daemon closes a connection that does not finish its frame
in time while others wait: room that is announced but not used would be held for ever.

Requests and responses take from one budget. A response keeps its room until its client has taken it, or a client that
does not read could fill any memory. Each connection has a share per direction. A response that comes while a request of
its connection holds room never waits, because that request may be waiting for it: without room it is refused.

No I/O and no clock: `on_room` notifies the shell, and the shell asks for `overdue` at intervals.
**Source:** `queued.max.request.bytes` of a broker (KIP-72).
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kafka_quotas.core.errors import ProtocolError

SMALL_BYTES: Final = 64 * 1024
"""Longest frame that needs no room."""
GATHER_MS: Final = 10_000
"""How long a frame may be gathered while others wait for room."""


class GatherBudget:
    """The bytes that all connections gather at the moment, and the queue for room."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._gathering: dict[GatherShare, int] = {}
        """Share -> when it began to gather (ms), earliest first."""
        self._waiting: deque[GatherShare] = deque()
        self.used_bytes = 0

    def share(self) -> "GatherShare":
        """Make the share of one direction of one connection."""
        return GatherShare(self)

    def overdue(self, now_ms: int) -> list["GatherShare"]:
        """Return the shares that have gathered for `GATHER_MS`, if another share waits for room."""
        if not self._waiting:
            return []
        return [share for share, since_ms in self._gathering.items() if now_ms - since_ms >= GATHER_MS]

    def take(self, share: "GatherShare", now_ms: int) -> bool:
        """Reserve room for a share's frame, or queue the share, and return whether it has room."""
        if share in self._gathering:
            return True
        if share.is_waiting:
            return False
        # Later frames queue even if they would fit: a long frame would never get its turn otherwise.
        if self._waiting or not self._fits(share):
            share.is_waiting = True
            self._waiting.append(share)
            return False
        self._give(share, now_ms)
        return True

    def take_now(self, share: "GatherShare", now_ms: int) -> bool:
        """Reserve room for a share's frame before those that queue, and return whether there is any."""
        if share not in self._gathering:
            if not self._fits(share):
                return False
            self._give(share, now_ms)
        return True

    def give_back(self, share: "GatherShare", now_ms: int) -> None:
        """Take back the room or the place in the queue of a share, and give room to the next in the queue."""
        if share.is_waiting:
            share.is_waiting = False
            self._waiting.remove(share)
        # A connection that closes while it waits or gathers comes here as well: its share must not be lost.
        if self._gathering.pop(share, None) is not None:
            self.used_bytes -= share.length
        while self._waiting and self._fits(self._waiting[0]):
            first = self._waiting.popleft()
            first.is_waiting = False
            self._give(first, now_ms)
            first.on_room()

    def _fits(self, share: "GatherShare") -> bool:
        # A frame longer than the budget is gathered alone: it would wait for ever otherwise.
        return not self._gathering or self.used_bytes + share.length <= self._limit_bytes

    def _give(self, share: "GatherShare", now_ms: int) -> None:
        self.used_bytes += share.length
        self._gathering[share] = now_ms


def _nothing() -> None:
    pass


@dataclass(slots=True, eq=False)
class GatherShare:
    """The part of the budget of one direction of one connection, which gathers one frame at a time."""

    _budget: GatherBudget
    length: int = 0
    """Length of the frame that is gathered or waits, 0 for none that needs room."""
    is_waiting: bool = False
    on_room: Callable[[], object] = _nothing
    """Callback for room for the frame that waited; it must not resume at once, as another connection is at work."""
    on_overdue: Callable[[], None] = _nothing
    """Callback for the caller of `overdue`."""

    @property
    def holds_room(self) -> bool:
        """Whether a frame of the share is gathered, or has its room still."""
        return self.length > 0 and not self.is_waiting

    def take(self, length: int, now_ms: int, *, may_wait: bool = True) -> bool:
        """Reserve room for a frame and return whether there is any.

        Without room, call again with the same frame after `on_room`.

        Raises:
            ProtocolError: There is no room, and the frame may not wait.
        """
        # Any connection may hold one read of this size anyway, so small requests never wait for large ones.
        if length <= SMALL_BYTES:
            return True
        self.length = length
        if may_wait or self.is_waiting:
            return self._budget.take(self, now_ms)
        if self._budget.take_now(self, now_ms):
            return True
        self.length = 0
        error = ProtocolError(f"no room for a response of {length} bytes", hint="see --queued-max-request-bytes")
        error.sender = "client"  # which asked for it
        raise error

    def release(self) -> None:
        """Forget whom to notify of room, because the connection has ended."""
        self.on_room = self.on_overdue = _nothing

    def end(self, now_ms: int) -> None:
        """Give back the room of a frame that is done or no longer wanted."""
        if self.length:
            self._budget.give_back(self, now_ms)
            self.length = 0
