"""Frames of one direction of a connection, and the memory for those that are gathered whole.

A stream cuts bytes into frames, wherever the network cut them. It passes bytes on as they came, as views of the chunk
that was fed, and gathers only the frames that must be seen whole. It never joins two payloads. It keeps the rest of a
chunk that can't be passed on yet (an incomplete head, or a frame that may not begin now) and puts it before the next
chunk; the rest is never longer than one chunk and one head.

A frame that is gathered takes its length from a budget of all connections before its first byte is taken. Without room
the daemon does not read its connection until there is some, first come, first served. A frame longer than the whole
budget gets its turn when no other is gathered. Frames of one read or less take no part, so small requests never wait
for large ones. The daemon closes a connection that does not finish its frame in time while others wait: room that is
announced but not used would be held for ever.

Requests and responses take from one budget, each connection with a share per direction. A response keeps its room until
its client has taken it, or a client that does not read could fill any memory. A response that comes while a request of
its connection holds room never waits, because that request may be waiting for it: without room it is refused.

No I/O and no clock: `on_room` notifies the shell, and the shell asks for `overdue` at intervals.
**Source:** `queued.max.request.bytes` of a broker (KIP-72).
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.wire.codec.skip import Buffer


class Patch(NamedTuple):
    """Bytes that replace the same number of bytes at an offset of the chunk."""

    offset: int
    content: bytes


Keep: TypeAlias = Callable[[memoryview, int, int], Buffer]
"""(chunk, start and end of a frame's next piece in it) -> the bytes of that piece to gather."""
FindTail: TypeAlias = Callable[[memoryview, int, int], int | None]
"""(chunk, start and end of a frame's next piece in it) -> where the tail starts in it, None if after it."""


class Frame(NamedTuple):
    """The decision how to pass one frame on."""

    length: int
    """Bytes of the frame, length field included."""
    gather: bool = False
    """Whether to gather the whole frame and hand it to `end`."""
    patch: Patch | None = None
    """Bytes to change, within the frame and the current chunk; None for a frame that is gathered."""
    find_tail: FindTail | None = None
    """The start of the frame's end that is gathered, while the rest streams."""
    replacement: bytes | None = None
    """Bytes that go out at once in place of the frame."""
    keep: Keep | None = None
    """The part of each piece that is gathered, None for all of it."""


Decision: TypeAlias = Frame | int
"""A frame, or the length of one that passes unchanged, as nearly all do."""


Begin: TypeAlias = Callable[[memoryview, int, int], Decision | None]
"""(chunk, offset of a frame, now_ms) -> the decision, None if more bytes are needed or the frame may not begin yet."""
End: TypeAlias = Callable[[bytearray | None, int], Buffer | None]
"""(the gathered frame or None, now_ms) -> the bytes to pass on in place of a gathered frame, or after another."""


@dataclass(slots=True, eq=False)
class FrameStream:
    """One direction's frames, from the fed chunks to the list of bytes to write.

    It calls `begin` and `end` for each frame and appends what may pass to `output`. It never writes to a chunk.
    """

    begin: Begin
    end: End
    output: list[Buffer]
    sender: str = "client"
    """The peer that sends these bytes, which an error about them names."""
    is_between: bool = True
    """Whether the next byte is the first of a frame and no bytes are kept."""
    _left: int = 0
    _gathered: bytearray | None = None
    _find_tail: FindTail | None = None
    _keep: Keep | None = None
    _drops: bool = False
    _rest: bytearray = field(default_factory=bytearray)

    @property
    def mid_frame(self) -> bool:
        """Whether a frame has begun and not ended."""
        return self._left > 0

    @property
    def rest_bytes(self) -> int:
        """The number of kept bytes, which belong to no frame yet."""
        return len(self._rest)

    def release(self) -> None:
        """Drop what is kept, and who takes it, because the connection has ended."""
        self._rest, self._gathered = bytearray(), None
        self.begin, self.end = lambda *_: None, lambda *_: None
        self._find_tail = self._keep = None

    def resume(self, now_ms: int) -> None:
        """Try the kept bytes again."""
        if self._rest:
            self.feed(memoryview(b""), now_ms)

    def feed(self, chunk: memoryview, now_ms: int, position: int = 0) -> None:
        """Cut a chunk into frames and append what may pass to the output.

        Frames that end before `position` pass unchanged and need no `begin`; it is 0 unless the stream `is_between`.
        """
        try:
            self._feed(chunk, now_ms, position)
        except ProtocolError as error:
            # A response lets the requests that wait for it begin: what is wrong with those is not the broker's fault.
            error.sender = error.sender or self.sender
            raise

    def _feed(self, chunk: memoryview, now_ms: int, position: int) -> None:
        # The one copy of streamed bytes. What is kept grows in place: a head that comes byte by byte is not copied
        # for each of them.
        kept = self._rest
        if kept:
            kept += chunk
            chunk = memoryview(kept)
            self._rest = bytearray()
        passed = 0
        end = len(chunk)
        while position < end:
            if not self._left:
                frame = self.begin(chunk, position, now_ms)
                # A copy: a view would keep all of the chunk in memory while its connection is left unread.
                if frame is None:
                    self._rest = kept if kept and not position else bytearray(chunk[position:])
                    break
                if not isinstance(frame, int):
                    passed = self._start(frame, chunk, passed, position)
                elif frame <= end - position:  # passes unchanged and is complete, as nearly all small ones
                    position += frame
                    after = self.end(None, now_ms)
                    if after is not None:
                        passed = self._pass(chunk, passed, position)
                        self.output.append(after)
                    continue
                else:
                    self._left = frame
            start, position = position, min(position + self._left, end)
            passed = self._take(chunk, passed, start, position, now_ms)
        # Nearly always all of the chunk passes, which needs no slice.
        if position > passed:
            self.output.append(chunk[passed:position] if passed or position < end else chunk)
        self.is_between = not (self._left or self._rest)

    def _take(self, chunk: memoryview, passed: int, start: int, end: int, now_ms: int) -> int:
        """Take the next piece of a frame, end it after its last one, and return the end of what was passed on."""
        self._left -= end - start
        # The replacement went out when the frame began, and none of its own bytes may follow.
        if self._drops:
            passed = end
        if self._find_tail is not None and (tail := self._find_tail(chunk, start, end)) is not None:
            self._find_tail = None
            self._gathered = bytearray()
            passed = self._pass(chunk, passed, tail)
        if self._gathered is not None:
            self._gathered += chunk[passed:end] if self._keep is None else self._keep(chunk, start, end)
            passed = end
        if self._left:
            return passed
        gathered, self._gathered = self._gathered, None
        self._find_tail = None
        self._drops = False
        after = self.end(gathered, now_ms)
        if after is not None:
            passed = self._pass(chunk, passed, end)
            self.output.append(after)
        return passed

    def _start(self, frame: Frame, chunk: memoryview, passed: int, position: int) -> int:
        """Set up a frame that does not just pass, and return the end of what was passed on of the chunk."""
        self._left = frame.length
        self._find_tail = frame.find_tail
        self._keep = frame.keep
        if frame.gather:
            self._gathered = bytearray()
            return self._pass(chunk, passed, position)
        if frame.replacement is not None:
            self._drops = True
            passed = self._pass(chunk, passed, position)
            self.output.append(frame.replacement)
            return passed
        if frame.patch is None:
            return passed
        before = self._pass(chunk, passed, frame.patch.offset)
        self.output.append(frame.patch.content)
        return before + len(frame.patch.content)

    def _pass(self, chunk: memoryview, start: int, end: int) -> int:
        if end > start:
            self.output.append(chunk[start:end])
        return end


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

    def take(self, share: "GatherShare", now_ms: int, *, may_wait: bool) -> bool:
        """Reserve room for a share's frame and return whether there is any, or queue a share that may wait."""
        if share in self._gathering:
            return True
        if share.is_waiting:
            return False
        # Later frames queue even if they would fit: a long frame would never get its turn otherwise.
        if (self._waiting and may_wait) or not self._fits(share):
            if may_wait:
                share.is_waiting = True
                self._waiting.append(share)
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

    @property
    def holds_room(self) -> bool:
        """Whether a frame of the share is gathered, or has its room still."""
        return self.length > 0 and not self.is_waiting

    def take(self, length: int, now_ms: int, *, may_wait: bool = True) -> bool:
        """Reserve room for a frame and return whether there is any.

        Without room, call again with the same frame after `on_room`.
        """
        # Any connection may hold one read of this size anyway, so small requests never wait for large ones.
        if length <= SMALL_BYTES:
            return True
        self.length = length
        if self._budget.take(self, now_ms, may_wait=may_wait):
            return True
        if may_wait or self.is_waiting:
            return False
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
