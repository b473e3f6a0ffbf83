"""One direction of a connection: bytes cut into frames wherever they were cut by the network.

Bytes are passed on as they came, as views of the chunk that was fed; only frames that somebody asked to see whole are
gathered. Never two payloads are joined. The rest of a chunk that can't be passed on yet (an incomplete head, or a frame
that may not begin now) is kept and comes first with the next chunk; it is never longer than one chunk and one head.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from kafka_quotas.wire.walk import Buffer


class Frame(NamedTuple):
    """What was decided about a frame: its bytes (length field included), and whether to gather it."""

    length: int
    gather: bool


Begin: TypeAlias = Callable[[memoryview, int, int], Frame | None]
"""(chunk, offset of a frame, now_ms) -> the decision, None if more bytes are needed or the frame may not begin yet.

The chunk is writable: what is small and near the frame's start is patched in place.
"""
End: TypeAlias = Callable[[bytearray | None, int], Buffer | None]
"""(the gathered frame or None, now_ms) -> the bytes to pass on in place of a gathered frame."""


class FrameStream:
    """Shows frames to `begin` and `end` and appends what may pass to `output`.

    Views in `output` are into the chunk: they are to be written before the chunk's memory is used again.
    """

    __slots__ = ("_begin", "_end", "_gathered", "_left", "_output", "_rest")

    def __init__(self, begin: Begin, end: End, output: list[Buffer]) -> None:
        self._begin = begin
        self._end = end
        self._output = output
        self._left = 0
        self._gathered: bytearray | None = None
        self._rest = bytearray()

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
            self.feed(memoryview(bytearray()), now_ms)

    def feed(self, chunk: memoryview, now_ms: int) -> None:
        """Nothing; what may pass is in the output.

        Raises `ProtocolError` where the bytes are none that the protocol knows.
        """
        if self._rest:
            chunk = memoryview(self._rest + chunk)
            self._rest = bytearray()
        passed = position = 0
        end = len(chunk)
        while position < end:
            if not self._left:
                frame = self._begin(chunk, position, now_ms)
                if frame is None:
                    self._rest = bytearray(chunk[position:])
                    break
                self._left = frame.length
                if frame.gather:
                    if position > passed:
                        self._output.append(chunk[passed:position])
                    passed = position
                    self._gathered = bytearray()
            step = min(self._left, end - position)
            position += step
            self._left -= step
            if self._gathered is not None:
                self._gathered += chunk[passed:position]
                passed = position
            if not self._left:
                gathered, self._gathered = self._gathered, None
                replacement = self._end(gathered, now_ms)
                if replacement is not None:
                    self._output.append(replacement)
        if position > passed:
            self._output.append(chunk[passed:position] if passed or position < end else chunk)
