"""A client's activity by slots of time, in bounded memory.

Invariants: sums over all slots are exact. Slots are one second long at first. Where there would be too many, they are
merged into slots of one quota window, and then into twice as many windows each time. So windows stay distinct for as
long as `max_slots` of them last.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SECOND_MS = 1000
_SUMS = ("records", "size", "charged", "responses", "throttled", "throttle_sum_ms", "failed", "dropped")
MAX_SLOTS = 8192
"""More than two hours of seconds, or a day and a night of windows of 11 s."""


@dataclass(slots=True, kw_only=True)
class Slot:
    """The activity in one slot of time."""

    start_ms: int
    """Milliseconds since the start of the load."""
    records: int = 0
    size: int = 0
    """Bytes of payload."""
    charged: int = 0
    """The charge to the quota (bytes, requests, partitions or connections, depending on the load)."""
    responses: int = 0
    """The number of all responses."""
    throttled: int = 0
    """The number of throttle times above 0."""
    throttle_sum_ms: int = 0
    """The sum of all announced throttle times."""
    throttle_max_ms: int = 0
    """The longest announced throttle time."""
    failed: int = 0
    dropped: int = 0

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

    def add_many(
        self,
        t_ms: "NDArray[np.int64]",
        *,
        records: "NDArray[np.int64]",
        size: "NDArray[np.int64]",
        charged: "NDArray[np.int64]",
        throttle_ms: "NDArray[np.int64]",
    ) -> None:
        """Add responses at times that ascend, each with the records that it acknowledges."""
        import numpy as np  # noqa: PLC0415 - only callers that have it come here

        edges = [0, *(np.flatnonzero(np.diff(t_ms // self.slot_ms)) + 1).tolist(), len(t_ms)]
        for first, end in pairwise(edges):
            slot, part = self.at(int(t_ms[first])), np.s_[first:end]
            slot.records += int(records[part].sum())
            slot.size += int(size[part].sum())
            slot.charged += int(charged[part].sum())
            slot.responses += end - first
            slot.throttled += int(np.count_nonzero(throttle_ms[part]))
            slot.throttle_sum_ms += int(throttle_ms[part].sum())
            slot.throttle_max_ms = max(slot.throttle_max_ms, int(throttle_ms[part].max()))

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
