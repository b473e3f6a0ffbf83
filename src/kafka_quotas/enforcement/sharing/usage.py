"""The usage of one shared bucket: by the clients here over the last window, and by another member as it reports it."""

from collections import deque
from typing import Final

from kafka_quotas.enforcement.sharing.report import Entry

RATE_MS: Final = 2_000
"""Time over which a member's own rate is measured."""
AHEAD_MS: Final = 5_000
"""Longest time for which others are reckoned to continue as they reported."""
WAITING_MS: Final = 4_000
"""Time for which a client that waited counts as waiting: between two throttle times it sends what it may."""


class OwnUsage:
    """The usage of a bucket by the clients here, noted at every report, and the clients that wait."""

    def __init__(self, span_ms: int) -> None:
        self._span_ms = span_ms
        self._notes: deque[tuple[int, float]] = deque()
        self._last_total = 0.0
        self._used_ms: int | None = None
        self.since_ms = 0
        """Time since when clients use the bucket without a rest of a whole window."""
        self._waited: deque[tuple[int, int]] = deque()

    @property
    def waiting(self) -> int:
        """The most clients that waited at once within `WAITING_MS`."""
        return max((waiting for _, waiting in self._waited), default=0)

    @property
    def total(self) -> float:
        """The latest noted total."""
        return self._notes[-1][1] if self._notes else 0.0

    def begin(self, total: float, used: float, age_ms: int, now_ms: int) -> None:
        """Start with a total, of which a part was charged `age_ms` ago on average."""
        self._notes = deque(((now_ms - 2 * age_ms, total - used), (now_ms, total)))

    def note(self, total: float, now_ms: int, *, waiting: int) -> bool:
        """Keep the total of this moment and how many clients wait, and return whether the total has changed."""
        self._waited.append((now_ms, waiting))
        while self._waited[0][0] < now_ms - WAITING_MS:
            self._waited.popleft()
        changed = total != self._notes[-1][1]
        self._notes.append((now_ms, total))
        while len(self._notes) > 2 and self._notes[1][0] <= now_ms - self._span_ms:
            self._notes.popleft()
        return changed

    def follow(self, total: float, now_ms: int) -> None:
        """Find out since when clients use the bucket."""
        if total != self._last_total:
            if self._used_ms is None or now_ms - self._used_ms > self._span_ms:
                self.since_ms = now_ms
            self._last_total, self._used_ms = total, now_ms

    def is_active(self, now_ms: int) -> bool:
        """Return whether clients used the bucket within the window."""
        return self._used_ms is not None and now_ms - self._used_ms <= self._span_ms

    def rate(self, total: float, now_ms: int) -> float:
        """Return the amount per second of the last seconds."""
        at_ms, before = self._before(now_ms - RATE_MS)
        return max(0.0, total - before) * 1000.0 / max(now_ms - at_ms, RATE_MS)

    def recent(self, total: float, now_ms: int) -> float:
        """Return the part of a total that is in the window."""
        return max(0.0, total - self._before(now_ms - self._span_ms)[1])

    def age_ms(self, total: float, now_ms: int) -> int:
        """Return how long ago the part in the window was charged on average."""
        since_ms = now_ms - self._span_ms
        recent, (before_ms, before) = self.recent(total, now_ms), self._before(since_ms)
        weighed = 0.0
        for at_ms, noted in (*self._notes, (now_ms, total)):
            if at_ms > before_ms:
                weighed += (noted - before) * (now_ms - (at_ms + max(before_ms, since_ms)) / 2)
                before_ms, before = at_ms, noted
        return max(0, min(round(weighed / recent), self._span_ms // 2)) if recent else 0

    def total_at(self, at_ms: int) -> float:
        """Return the total of a time, between the notes before and after it."""
        before_ms, before = self._notes[0]
        for noted_ms, total in self._notes:
            if noted_ms > at_ms:
                if noted_ms > before_ms:
                    before += (total - before) * max(0, at_ms - before_ms) / (noted_ms - before_ms)
                break
            before_ms, before = noted_ms, total
        return before

    def unreported(self, total: float) -> float:
        """Return the part of a total that was used since the bucket is shared, or before."""
        return total - self._notes[0][1]

    def _before(self, at_ms: int) -> tuple[int, float]:
        found = self._notes[0]
        for noted in self._notes:
            if noted[0] > at_ms:
                break
            found = noted
        return found


class Reckoning:
    """An entry about a bucket, and what will have become of its total since."""

    __slots__ = ("at_ms", "entry", "sequence")

    def __init__(self, entry: Entry, sequence: int, now_ms: int) -> None:
        self.entry, self.sequence, self.at_ms = entry, sequence, now_ms

    def expected(self, now_ms: int) -> float:
        """Return the total that is expected by now."""
        return self.entry.total + self.entry.rate * min(now_ms - self.at_ms, AHEAD_MS) / 1000.0


class RemoteUsage(Reckoning):
    """The usage of a bucket by another member, and how much of it is recorded here."""

    __slots__ = ("changed_ms", "recorded")

    def __init__(self, entry: Entry, sequence: int, now_ms: int) -> None:
        super().__init__(entry, sequence, now_ms)
        self.recorded, self.changed_ms = entry.total, now_ms

    def recent_at(self, now_ms: int, span_ms: int) -> float:
        """Return what is left in a window of what was in it at the latest report."""
        return self.entry.recent * max(0.0, 1.0 - (now_ms - self.at_ms) / span_ms)

    def follow(self, entry: Entry, sequence: int, now_ms: int) -> None:
        """Take up a later entry, but for what is recorded."""
        if entry.total != self.entry.total:
            self.changed_ms = now_ms
        self.entry, self.sequence, self.at_ms = entry, sequence, now_ms
