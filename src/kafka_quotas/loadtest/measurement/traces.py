"""Traces of one client: acknowledged bytes over time, and every response as the simulator takes it.

Invariants: the sum of an `AckTrace` is exact. Only its times are coarsened, to a grid that doubles whenever the trace
would outgrow its limit. A `ResponseTrace` keeps responses exactly or, where it is full, not at all.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

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
class Charge:
    """A charge by one broker to a client's quota, with the throttle time that it announced for it."""

    t_ms: int
    """Milliseconds since the start of the load, below 0 for what the bucket was charged with before it."""
    charged: float
    """The charge, negative if an earlier one was taken back."""
    throttle_ms: int = 0
    broker: int = 0
    """The broker, as far as the client can distinguish brokers."""


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

    def __iter__(self) -> Iterator[Charge]:
        columns = zip(self._t_ms, self._charged, self._throttle_ms, self._brokers, strict=True)
        for t_ms, charged, throttle_ms, broker in columns:
            yield Charge(t_ms=t_ms, charged=charged, throttle_ms=throttle_ms, broker=broker)

    def add_many(
        self, t_ms: Sequence[int], charged: Sequence[int], throttle_ms: Sequence[int], brokers: Sequence[int]
    ) -> None:
        """Add responses, as far as there is room."""
        room = max(self._max_responses - len(self._t_ms), 0)
        self._t_ms.extend(t_ms[:room])
        self._charged.extend(charged[:room])
        self._throttle_ms.extend(throttle_ms[:room])
        self._brokers.extend(brokers[:room])


SECOND_MS = 1000
_SUMS = ("records", "size", "charged", "responses", "throttled", "throttle_sum_ms", "failed", "dropped")
MAX_SLOTS = 8192
"""More than two hours of seconds, or a day and a night of windows of 11 s."""


@dataclass(slots=True, kw_only=True)
class Slot:
    """The activity in one slot of time, most often a second."""

    start_ms: int
    """Milliseconds since the start of the load."""
    rate: float = 0.0
    """The charge per second, which is known when the run has ended."""
    records: int = 0
    size: int = field(default=0, compare=False)
    """Bytes of payload."""
    charged: int = field(default=0, compare=False)
    """The charge to the quota (bytes, requests, partitions or connections, depending on the load)."""
    responses: int = 0
    throttled: int = 0
    """The number of throttle times above 0."""
    throttle_sum_ms: int = 0
    throttle_max_ms: int = 0
    failed: int = 0
    dropped: int = 0

    @property
    def second(self) -> int:
        """The start, in whole seconds since the start of the load."""
        return self.start_ms // 1000

    def take(self, other: "Slot") -> None:
        """Add the activity of another slot."""
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.throttle_max_ms = max(self.throttle_max_ms, other.throttle_max_ms)


class Timeline:
    """The slots of one client in order of time, without those of no activity."""

    __slots__ = ("_current", "_end_ms", "_max_slots", "_slots", "_window_ms", "slot_ms")

    def __init__(self, *, window_ms: int, max_slots: int = MAX_SLOTS) -> None:
        self.slot_ms = min(SECOND_MS, window_ms)
        self._window_ms = window_ms
        self._max_slots = max_slots
        self._slots: list[Slot] = []
        self._current = Slot(start_ms=0)
        self._end_ms = 0  # of the current slot; 0 while there is none

    @classmethod
    def of(cls, slots: Sequence[Slot], *, slot_ms: int, window_ms: int) -> "Timeline":
        """Return a timeline with these slots, in order of time, which are `slot_ms` long."""
        timeline = cls(window_ms=window_ms, max_slots=max(len(slots), 1))
        timeline.slot_ms = slot_ms
        timeline._slots = list(slots)
        if slots:
            timeline._current = slots[-1]
            timeline._end_ms = slots[-1].start_ms + slot_ms
        return timeline

    def at(self, t_ms: int) -> Slot:
        """Return the slot for writing at a time that is not before that of the last call, or at 0."""
        if t_ms < self._end_ms:
            return self._current
        start_ms = max(t_ms - t_ms % self.slot_ms, 0)
        self._current = Slot(start_ms=start_ms)
        self._end_ms = start_ms + self.slot_ms
        self._slots.append(self._current)
        while len(self._slots) > self._max_slots:
            self._coarsen()
        return self._current

    @property
    def latest(self) -> Slot:
        """The slot that was written last, or the first one."""
        return self._current if self._slots else self.at(0)

    def slots(self) -> tuple[Slot, ...]:
        """Return the slots so far, of which the last is still written to."""
        return tuple(self._slots)

    @property
    def window_ms(self) -> int:
        """The length of the slots from `windows`."""
        return max(self._window_ms, self.slot_ms)

    def windows(self) -> tuple[Slot, ...]:
        """Return the slots merged into whole quota windows from 0 on, without empty ones."""
        return tuple(merged(self._slots, self.window_ms))

    def _coarsen(self) -> None:
        self.slot_ms = self._window_ms if self.slot_ms < self._window_ms else 2 * self.slot_ms
        self._slots = merged(self._slots, self.slot_ms)
        self._current = self._slots[-1]
        self._end_ms = self._current.start_ms + self.slot_ms


def merged(slots: Iterable[Slot], slot_ms: int) -> list[Slot]:
    """Return new slots of a greater length with the same sums."""
    merged_slots: list[Slot] = []
    for slot in slots:
        start_ms = slot.start_ms - slot.start_ms % slot_ms
        if not merged_slots or merged_slots[-1].start_ms != start_ms:
            merged_slots.append(Slot(start_ms=start_ms))
        merged_slots[-1].take(slot)
    return merged_slots
