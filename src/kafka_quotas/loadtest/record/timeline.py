"""What a client did, slot of time by slot of time, in bounded memory.

Invariants: sums over all slots are exact. Slots are of one second at first; where they would become too many they are
merged into slots of one quota window, and then into twice as many windows each time. So a window is told apart from
the next for as long as `max_slots` windows last.
"""

from collections.abc import Iterable
from dataclasses import dataclass

SECOND_MS = 1000
MAX_SLOTS = 8192
"""More than two hours of seconds, a day and a night of windows of 11 s."""


@dataclass(slots=True, kw_only=True)
class Slot:
    """What happened in one slot, from `start_ms` on (since the start of the load).

    `size` is payload bytes, `charged` what quotas are charged with (bytes, requests, partitions or connections, as the
    load has it). `throttle_sum_ms` and `throttle_max_ms` are of all announced throttle times, `throttled` counts those
    above 0, and `responses` all of them.
    """

    start_ms: int
    records: int = 0
    size: int = 0
    charged: int = 0
    responses: int = 0
    throttled: int = 0
    throttle_sum_ms: int = 0
    throttle_max_ms: int = 0
    failed: int = 0
    dropped: int = 0

    def take(self, other: "Slot") -> None:
        """Nothing; what happened in the other slot happened in this one."""
        self.records += other.records
        self.size += other.size
        self.charged += other.charged
        self.responses += other.responses
        self.throttled += other.throttled
        self.throttle_sum_ms += other.throttle_sum_ms
        self.throttle_max_ms = max(self.throttle_max_ms, other.throttle_max_ms)
        self.failed += other.failed
        self.dropped += other.dropped


class Timeline:
    """The slots of one client in order of time; slots in which nothing happened are not kept."""

    __slots__ = ("_current", "_end_ms", "_max_slots", "_slots", "_window_ms", "slot_ms")

    def __init__(self, *, window_ms: int, max_slots: int = MAX_SLOTS) -> None:
        self.slot_ms = min(SECOND_MS, window_ms)
        self._window_ms = window_ms
        self._max_slots = max_slots
        self._slots: list[Slot] = []
        self._current = Slot(start_ms=0)
        self._end_ms = 0  # of the current slot; 0 while there is none

    def at(self, t_ms: int) -> Slot:
        """The slot to write into at a time that is not before the last one asked for; times before 0 count as 0."""
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
        """The slot that was written last, the first one before that."""
        return self._current if self._slots else self.at(0)

    def slots(self) -> tuple[Slot, ...]:
        """The slots so far; they are still being written to."""
        return tuple(self._slots)

    @property
    def window_ms(self) -> int:
        """The length of the slots that `windows` tells."""
        return max(self._window_ms, self.slot_ms)

    def windows(self) -> tuple[Slot, ...]:
        """The slots merged into whole quota windows, the first of which begins at 0; empty ones are left out."""
        return tuple(merged(self._slots, self.window_ms))

    def _coarsen(self) -> None:
        self.slot_ms = self._window_ms if self.slot_ms < self._window_ms else 2 * self.slot_ms
        self._slots = merged(self._slots, self.slot_ms)
        self._current = self._slots[-1]
        self._end_ms = self._current.start_ms + self.slot_ms


def merged(slots: Iterable[Slot], slot_ms: int) -> list[Slot]:
    """New slots of a greater length with the same sums."""
    merged_slots: list[Slot] = []
    for slot in slots:
        start_ms = slot.start_ms - slot.start_ms % slot_ms
        if not merged_slots or merged_slots[-1].start_ms != start_ms:
            merged_slots.append(Slot(start_ms=start_ms))
        merged_slots[-1].take(slot)
    return merged_slots
