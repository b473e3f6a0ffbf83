"""Traces of one client: acknowledged bytes over time, and every response as the simulator takes it.

Invariants: the sum of an `AckTrace` is exact. Only its times are coarsened, to a grid that doubles whenever the trace
would outgrow its limit. A `ResponseTrace` keeps responses exactly or, where it is full, not at all.
"""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_ENTRIES = 120_000
"""Two minutes of uninterrupted acknowledgements at 1 ms, while a day of them ends at about 1 s."""


class AckTrace:
    """Pairs (t_ms, bytes) in order of time, at most one per `resolution_ms`."""

    def __init__(self, *, max_entries: int = MAX_ENTRIES) -> None:
        self.resolution_ms = 1
        self._max_entries = max_entries
        self._entries: list[tuple[int, int]] = []

    def add(self, t_ms: int, size: int) -> None:
        """Add `size` bytes that were acknowledged at `t_ms`, which is not before that of the last call."""
        slot = t_ms - t_ms % self.resolution_ms
        entries = self._entries
        if entries and entries[-1][0] == slot:
            entries[-1] = (slot, entries[-1][1] + size)
            return
        entries.append((slot, size))
        while len(self._entries) > self._max_entries:
            self._coarsen()

    def add_many(self, t_ms: "NDArray[np.int64]", sizes: "NDArray[np.int64]") -> None:
        """Add sizes at times that ascend, exactly as `add` does with each."""
        import numpy as np  # noqa: PLC0415 - only callers that have it come here

        slots = t_ms - t_ms % self.resolution_ms
        firsts = np.concatenate(([0], np.flatnonzero(np.diff(slots)) + 1))
        sums = np.add.reduceat(sizes, firsts).tolist()
        entries, fresh = self._entries, list(zip(slots[firsts].tolist(), sums, strict=True))
        if entries and entries[-1][0] == fresh[0][0]:
            fresh[0] = (fresh[0][0], entries.pop()[1] + fresh[0][1])
        entries += fresh
        while len(self._entries) > self._max_entries:
            self._coarsen()

    def entries(self) -> tuple[tuple[int, int], ...]:
        """Return the pairs so far (milliseconds of the grid, bytes)."""
        return tuple(self._entries)

    def recent_bytes(self, since_ms: int) -> int:
        """Return the bytes acknowledged at or after `since_ms`."""
        total = 0
        for t_ms, size in reversed(self._entries):
            if t_ms < since_ms:
                break
            total += size
        return total

    def _coarsen(self) -> None:
        self.resolution_ms *= 2
        merged: dict[int, int] = {}
        for t_ms, size in self._entries:
            slot = t_ms - t_ms % self.resolution_ms
            merged[slot] = merged.get(slot, 0) + size
        self._entries = list(merged.items())


MAX_RESPONSES = 1_000_000
"""10 minutes of 1,600 responses per second, which take 32 MB for one client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """One response."""

    t_ms: int
    """Milliseconds since the start of the load."""
    charged: int
    """The charge to the quota."""
    throttle_ms: int
    """The announced throttle time."""
    broker: int
    """The node that answered, as far as the client can distinguish nodes."""


class ResponseTrace:
    """The responses of one client in the order in which they arrived."""

    __slots__ = ("_brokers", "_charged", "_max_responses", "_t_ms", "_throttle_ms")

    def __init__(self, *, max_responses: int = MAX_RESPONSES) -> None:
        self._max_responses = max_responses
        self._t_ms = array("q")
        self._charged = array("q")
        self._throttle_ms = array("q")
        self._brokers = array("q")

    def __len__(self) -> int:
        return len(self._t_ms)

    def __iter__(self) -> Iterator[Response]:
        columns = zip(self._t_ms, self._charged, self._throttle_ms, self._brokers, strict=True)
        for t_ms, charged, throttle_ms, broker in columns:
            yield Response(t_ms=t_ms, charged=charged, throttle_ms=throttle_ms, broker=broker)

    def add(self, t_ms: int, charged: int, throttle_ms: int, broker: int = 0) -> None:
        """Add a response, where there is room."""
        if len(self._t_ms) < self._max_responses:
            self._t_ms.append(t_ms)
            self._charged.append(charged)
            self._throttle_ms.append(throttle_ms)
            self._brokers.append(broker)

    def add_many(
        self,
        t_ms: "NDArray[np.int64]",
        charged: "NDArray[np.int64]",
        throttle_ms: "NDArray[np.int64]",
        brokers: "NDArray[np.int64]",
    ) -> None:
        """Add responses, as far as there is room."""
        room = max(self._max_responses - len(self._t_ms), 0)
        self._t_ms.frombytes(t_ms[:room].tobytes())
        self._charged.frombytes(charged[:room].tobytes())
        self._throttle_ms.frombytes(throttle_ms[:room].tobytes())
        self._brokers.frombytes(brokers[:room].tobytes())
