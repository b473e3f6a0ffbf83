"""One direction of a connection: bytes cut into frames wherever they were cut by the network.

Bytes are passed on as they came, as views of the chunk that was fed; only frames that somebody asked to see whole are
gathered. Never two payloads are joined. The rest of a chunk that can't be passed on yet (an incomplete head, or a frame
that may not begin now) is kept and comes first with the next chunk; it is never longer than one chunk and one head.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from kafka_quotas.wire.codec.skip import Buffer


class Patch(NamedTuple):
    """Bytes that go out in place of as many at an offset of the chunk."""

    offset: int
    content: bytes


Keep: TypeAlias = Callable[[memoryview, int, int], Buffer]
"""(chunk, start and end of a frame's next piece in it) -> what is gathered of that piece."""
FindTail: TypeAlias = Callable[[memoryview, int, int], int | None]
"""(chunk, start and end of a frame's next piece in it) -> where the tail starts in it, None if that is further on."""


class Frame(NamedTuple):
    """What was decided about a frame: its bytes (length field included), whether to gather it, and what to change.

    A patch lies within the frame and within the chunk at hand; a frame that is gathered takes none. With `find_tail`
    only the end of the frame is gathered, from where that says, and with `keep` only what that returns. A `replacement`
    goes out at once and the frame nowhere.
    """

    length: int
    gather: bool = False
    patch: Patch | None = None
    find_tail: FindTail | None = None
    replacement: bytes | None = None
    keep: Keep | None = None


Decision: TypeAlias = Frame | int
"""A frame, or the length of one that passes as it is, as nearly all do."""


Begin: TypeAlias = Callable[[memoryview, int, int], Decision | None]
"""(chunk, offset of a frame, now_ms) -> the decision, None if more bytes are needed or the frame may not begin yet."""
End: TypeAlias = Callable[[bytearray | None, int], Buffer | None]
"""(the gathered frame or None, now_ms) -> the bytes to pass on in place of a gathered frame, or behind another."""


class FrameStream:
    """Shows frames to `begin` and `end` and appends what may pass to `output`; chunks are never written to."""

    __slots__ = (
        "_begin",
        "_drops",
        "_end",
        "_find_tail",
        "_gathered",
        "_keep",
        "_left",
        "_output",
        "_rest",
        "is_between",
    )

    def __init__(self, begin: Begin, end: End, output: list[Buffer]) -> None:
        self._begin = begin
        self._end = end
        self._output = output
        self._left = 0
        self._gathered: bytearray | None = None
        self._find_tail: FindTail | None = None
        self._keep: Keep | None = None
        self._drops = False
        self._rest = bytearray()
        self.is_between = True
        """Whether the next byte is a frame's first and nothing is kept."""

    @property
    def mid_frame(self) -> bool:
        """Whether a frame has begun and not ended."""
        return self._left > 0

    @property
    def rest_bytes(self) -> int:
        """How many bytes are kept that no frame has taken yet."""
        return len(self._rest)

    def resume(self, now_ms: int) -> None:
        """Nothing; what was kept is tried again."""
        if self._rest:
            self.feed(memoryview(b""), now_ms)

    def feed(self, chunk: memoryview, now_ms: int, position: int = 0) -> None:
        """Nothing; what may pass is in the output.

        All frames before `position` pass as they are and are done with; there are none unless the stream `is_between`.
        Raises `ProtocolError` where the bytes are none that the protocol knows.
        """
        if self._rest:
            chunk = memoryview(self._rest + chunk)
            self._rest = bytearray()
        passed = 0
        end = len(chunk)
        while position < end:
            if not self._left:
                frame = self._begin(chunk, position, now_ms)
                if frame is None:
                    self._rest = bytearray(chunk[position:])
                    break
                if not isinstance(frame, int):
                    passed = self._start(frame, chunk, passed, position)
                elif frame <= end - position:  # passes as it is and is here as a whole, as nearly all small ones
                    position += frame
                    behind = self._end(None, now_ms)
                    if behind is not None:
                        passed = self._put(chunk, passed, position, behind)
                    continue
                else:
                    self._left = frame
            start, position = position, min(position + self._left, end)
            passed = self._take(chunk, passed, start, position, now_ms)
        if position > passed:
            self._output.append(chunk[passed:position] if passed or position < end else chunk)
        self.is_between = not (self._left or self._rest)

    def _take(self, chunk: memoryview, passed: int, start: int, end: int, now_ms: int) -> int:
        """The offset behind what was passed on, when so much more of a frame, or all of it, has been seen."""
        self._left -= end - start
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
        behind = self._end(gathered, now_ms)
        return passed if behind is None else self._put(chunk, passed, end, behind)

    def _put(self, chunk: memoryview, passed: int, end: int, behind: Buffer) -> int:
        """The offset behind what was passed on: the chunk up to an offset, and something that comes behind it."""
        passed = self._pass(chunk, passed, end)
        self._output.append(behind)
        return passed

    def _start(self, frame: Frame, chunk: memoryview, passed: int, position: int) -> int:
        """The offset behind what was passed on, once all before the frame was, and its patch."""
        self._left = frame.length
        self._find_tail = frame.find_tail
        self._keep = frame.keep
        if frame.gather:
            self._gathered = bytearray()
            return self._pass(chunk, passed, position)
        if frame.replacement is not None:
            self._drops = True
            passed = self._pass(chunk, passed, position)
            self._output.append(frame.replacement)
            return passed
        if frame.patch is None:
            return passed
        before = self._pass(chunk, passed, frame.patch.offset)
        self._output.append(frame.patch.content)
        return before + len(frame.patch.content)

    def _look_for_tail(self, chunk: memoryview, passed: int, start: int, end: int) -> int:
        """The offset behind what was passed on; if the frame's tail starts between two offsets, it is gathered now."""
        assert self._find_tail is not None
        tail = self._find_tail(chunk, start, end)
        if tail is None:
            return passed
        self._find_tail = None
        self._gathered = bytearray()
        return self._pass(chunk, passed, tail)

    def _pass(self, chunk: memoryview, start: int, end: int) -> int:
        """The offset behind what was passed on: the chunk from `start` to `end`."""
        if end > start:
            self._output.append(chunk[start:end])
        return end
