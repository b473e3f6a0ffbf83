"""One direction of a connection: cuts bytes into frames, wherever the network cut them.

The stream passes bytes on as they came, as views of the chunk that was fed, and gathers only the frames that must be
seen whole. It never joins two payloads. It keeps the rest of a chunk that can't be passed on yet (an incomplete head,
or a frame that may not begin now) and puts it before the next chunk; the rest is never longer than one chunk and one
head.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

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


def _begin_none(chunk: memoryview, offset: int, now_ms: int) -> Decision | None:  # noqa: ARG001 - a `Begin`
    return None


def _end_none(gathered: bytearray | None, now_ms: int) -> Buffer | None:  # noqa: ARG001 - an `End`
    return None


@dataclass(slots=True, eq=False)
class FrameStream:
    """One direction's frames, from the fed chunks to the list of bytes to write.

    It calls `begin` and `end` for each frame and appends what may pass to `output`. It never writes to a chunk.
    """

    begin: Begin
    end: End
    output: list[Buffer]
    sender: str = "client"
    """The peer whose bytes these are, which an error about them names."""
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
        self.begin, self.end = _begin_none, _end_none
        self._find_tail = self._keep = None

    def resume(self, now_ms: int) -> None:
        """Try the kept bytes again."""
        if self._rest:
            self.feed(memoryview(b""), now_ms)

    def feed(self, chunk: memoryview, now_ms: int, position: int = 0) -> None:
        """Cut a chunk into frames and append what may pass to the output.

        Args:
            chunk: The bytes that were read.
            now_ms: The time of the read.
            position: The end of the frames that pass unchanged and need no `begin`; 0 unless the stream `is_between`.

        Raises:
            ProtocolError: The bytes are no frame of the protocol; it names their sender.
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
                        passed = self._put(chunk, passed, position, after)
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
        if self._find_tail is not None:
            passed = self._look_for_tail(chunk, passed, start, end)
        if self._gathered is not None:
            self._gathered += chunk[passed:end] if self._keep is None else self._keep(chunk, start, end)
            passed = end
        if self._left:
            return passed
        gathered, self._gathered = self._gathered, None
        self._find_tail = None
        self._drops = False
        after = self.end(gathered, now_ms)
        return passed if after is None else self._put(chunk, passed, end, after)

    def _put(self, chunk: memoryview, passed: int, end: int, after: Buffer) -> int:
        """Pass on the chunk up to `end` and then `after`, and return `end`."""
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

    def _look_for_tail(self, chunk: memoryview, passed: int, start: int, end: int) -> int:
        """Gather from the frame's tail on if it starts in this piece, and return where passing on ended."""
        assert self._find_tail is not None
        tail = self._find_tail(chunk, start, end)
        if tail is None:
            return passed
        self._find_tail = None
        self._gathered = bytearray()
        return self._pass(chunk, passed, tail)

    def _pass(self, chunk: memoryview, start: int, end: int) -> int:
        if end > start:
            self.output.append(chunk[start:end])
        return end
