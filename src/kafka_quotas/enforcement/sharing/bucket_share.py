"""One bucket that a fleet shares: what its other members use of it, and how much of it this one may use.

Two things are done to the bucket, between requests. What others use is recorded in it, reckoned ahead at the rate that
they reported and corrected by their next total, so the bucket is that of one broker that hears of some clients a little
later. And a part of the capacity is reserved for the others, by what they know of the usage here:

- Nothing yet: a member may use an equal part of the capacity, as far as the others have left it.
- That no client waits: it may use an equal part of the room that is left, as all members know it.
- How many of its clients wait: it has the part of the limit that these are of all waiting clients, and what members
  without waiting clients, or members that have ended, have in the window is theirs. So no total depends on how late
  members hear of each other, but for the excess of all, which each makes up for.

Invariant: the parts of all members add up to at most 1 + `IDLE_PART`.

**Source:** "Cloud Control with Distributed Rate Limiting" (SIGCOMM 2007) for its two designs, the global bucket and the
flow proportional share, which are joined here. `benchmarks/fleet/simulation.py` is how the figures were chosen.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final, NamedTuple

from kafka_quotas.core.metrics.rate import ShareableRate
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.enforcement.config.settings import Fallback
from kafka_quotas.enforcement.sharing.buckets import BucketRecorder, SharedBucket
from kafka_quotas.enforcement.sharing.report import MAX_SHORT, Entry

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


IDLE_PART: Final = 0.1
"""Part of the room that all members together may use of a bucket while the others haven't heard of them."""
CAP: Final = 1.15
"""Multiple of the capacity up to which usage counts while clients wait: nobody waits out more."""
DEBT_PART: Final = 0.1
"""Part of the capacity up to which clients make up for what they used beyond their part before others heard of it."""
EXCESS_PART: Final = 1.5
"""Multiple of what all members used too much that each of them makes up for at once."""
WAITING_CHANGE: Final = 0.3
"""Change of the number of waiting clients that is reported, as a part of it."""
MAX_SENT: Final = 32
"""Most entries that are kept until all others have heard them."""
_CLOSED: Final = 2.0
"""Multiple of the capacity that is reserved where nothing may be used: every request waits out a window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What a member knows of the fleet at one moment, as far as it concerns any bucket."""

    now_ms: int
    members: int
    heard_sequence: int
    """Number of our latest report that every other member has heard."""
    cut_off: Fallback | None = None
    """What to allow while the others can't be heard; None while they can."""


class _Past(NamedTuple):
    """What came before a time, on average by its age."""

    amount: float
    age_ms: int
    at_ms: int


class BucketShare:
    """What is known of one shared bucket, with or without clients of it here."""

    def __init__(self, number: int, window: QuotaWindow, recorder: BucketRecorder, *, total: float = 0.0) -> None:
        """Make a share of a bucket that is not there yet, with the total that the others heard of before."""
        self.number = number
        self.bucket: SharedBucket | None = None
        self._samples: ShareableRate | None = None  # the bucket itself, if it keeps samples of a window
        self.touched_ms = 0
        """Time at which a usage of it, here or elsewhere, was last heard of."""
        self._span_ms = span_ms = window.samples * window.window_ms
        self._sample_ms = window.window_ms
        self._recorder = recorder
        self._own = OwnUsage(span_ms)
        self._start = total
        self._remotes: dict[int, RemoteUsage] = {}
        self._level: _Past | None = None  # what all members have in the window, as one of them reports to a newcomer
        self._recorded = self._own_base = 0.0
        self._part = 1.0
        self._sent: deque[Reckoning] = deque()
        self._heard: Reckoning | None = None
        self._share: float | None = None
        self._left: dict[int, RemoteUsage] = {}  # of members that ended: their bytes are in the window as long as any
        self._heard_past: list[_Past] = []  # recorded by the next `adjust`

    # What clients do here.

    def attach(self, bucket: SharedBucket, now_ms: int) -> None:
        """Take up a bucket, whose records so far are those of clients here, and record what others used."""
        own, used = self.total, bucket.used(now_ms)
        self.bucket, self._recorded = bucket, 0.0
        self._samples = bucket if isinstance(bucket, ShareableRate) else None
        self._own_base = bucket.total - own - used
        self._own.begin(own + used, used, self._age_ms(now_ms), now_ms)
        self.touched_ms = now_ms
        level, self._level = self._level, None
        self._heard_past.clear()
        if level is not None:
            self._record_past(level._replace(amount=level.amount - used), now_ms)
        for remote in self._remotes.values():
            if level is None:
                self._record_past(_Past(remote.entry.recent, remote.entry.age_ms, remote.at_ms), now_ms)
            remote.recorded = remote.entry.total

    @property
    def total(self) -> float:
        """The amount that clients here were charged, since the first time that it was shared."""
        return max(self._own.total, self._start) if self.bucket is None else self._own_total()

    def _own_total(self) -> float:
        assert self.bucket is not None
        return self.bucket.total - self._recorded - self._own_base

    def _age_ms(self, now_ms: int) -> int:
        return 0 if self._samples is None else min(round(self._samples.mean_age_ms(now_ms)), self._span_ms // 2)

    def _own_rate(self, now_ms: int) -> float:
        """Return the amount per second of the last seconds, at most this member's part of the limit."""
        if self.bucket is None:
            return 0.0
        rate = self._own.rate(self._own_total(), now_ms)
        if self._samples is None:
            return rate
        sustained = self.bucket.capacity * 1000.0 / self._span_ms * self._part
        return min(rate, sustained)

    def entry(self, now_ms: int, *, with_level: bool) -> Entry | None:
        """Return what to report of this bucket, None where no client of it is here."""
        bucket = self.bucket
        if bucket is None:
            return None
        total = self._own_total()
        # What a controller did not do is given back, but the others take no total that falls.
        published = max(total, self._sent[-1].entry.total if self._sent else 0.0)
        return Entry(
            bucket=self.number,
            total=published,
            rate=self._own_rate(now_ms),
            recent=self._own.recent(total, now_ms),
            age_ms=min(self._own.age_ms(total, now_ms), MAX_SHORT),
            waiting=min(self._own.waiting, MAX_SHORT),
            level=max(0.0, bucket.used(now_ms)) if with_level else 0.0,
            level_age_ms=min(self._age_ms(now_ms), MAX_SHORT) if with_level else 0,
        )

    def note(self, waiting: int, now_ms: int) -> None:
        """Keep the own total of this moment, from which rates are measured, and how many clients wait here."""
        if self.bucket is not None and self._own.note(self._own_total(), now_ms, waiting=waiting):
            self.touched_ms = now_ms

    def surprise(self, now_ms: int) -> float:
        """Return by how much, as a part of the capacity, the others are wrong about the usage here."""
        bucket = self.bucket
        if bucket is None or not bucket.capacity:
            return 0.0
        if not self._sent:
            return abs(self._own.unreported(self._own_total())) / bucket.capacity
        sent, waiting = self._sent[-1], self._own.waiting
        if abs(sent.entry.waiting - waiting) > WAITING_CHANGE * max(sent.entry.waiting, waiting):
            return 1.0
        return abs(self._own_total() - sent.expected(now_ms)) / bucket.capacity

    @property
    def last_sent_ms(self) -> int | None:
        """When an entry was last published, None for never."""
        return self._sent[-1].at_ms if self._sent else None

    @property
    def is_quiet(self) -> bool:
        """Whether the others know that no client uses it here."""
        return self.bucket is None or not self._sent or not self._sent[-1].entry.rate

    def sent(self, entry: Entry, sequence: int, now_ms: int) -> None:
        """Take note that an entry was published."""
        self._sent.append(Reckoning(entry, sequence, now_ms))
        if len(self._sent) > MAX_SENT:
            self._sent.popleft()

    # What others do elsewhere.

    def hear(self, member: int, entry: Entry, sequence: int, now_ms: int, *, with_level: bool) -> bool:
        """Take up a report of another member, unless its total falls, and return whether that was done.

        The level of all members counts for one that has just joined (`with_level`).
        """
        # Recorded by the next `adjust`: what is reserved grows by a multiple of all that is recorded until then.
        remote, bucket = self._remotes.get(member), self.bucket
        if remote is None and (remote := self._left.pop(member, None)) is not None:
            self._remotes[member] = remote  # it was only silent, and what is recorded of it must not count again
        if remote is None:
            self.touched_ms = now_ms
            self._remotes[member] = RemoteUsage(entry, sequence, now_ms)
            if not with_level:
                self._heard_past.append(_Past(entry.recent, entry.age_ms, now_ms))
            elif self._level is None or entry.level > self._level.amount:
                self._level = _Past(entry.level, entry.level_age_ms, now_ms)
            return True
        if sequence <= remote.sequence:
            return True
        if entry.total < remote.entry.total:
            return False
        if entry.rate or entry.total != remote.entry.total:
            self.touched_ms = now_ms
        silent_ms = now_ms - remote.at_ms
        remote.follow(entry, sequence, now_ms)
        if bucket is None:
            remote.recorded = entry.total
        elif silent_ms > AHEAD_MS and entry.total > remote.recorded:
            amount = min(entry.total - remote.recorded, entry.recent)
            self._heard_past.append(_Past(amount, entry.age_ms, now_ms))
            remote.recorded = entry.total
        return True

    def lose(self, member: int) -> None:
        """Reckon no longer with the usage of a member, whose past one stays recorded."""
        remote = self._remotes.pop(member, None)
        if remote is None:
            return
        self._left[member] = remote
        if self.bucket is None and remote.entry.recent:
            amount = remote.entry.recent + (0.0 if self._level is None else self._level.amount)
            self._level = _Past(amount, remote.entry.age_ms, remote.at_ms)

    def _follow(self, bucket: SharedBucket, remote: RemoteUsage, now_ms: int) -> None:
        # In whole 1,024ths, so that sums of whole bytes stay exact.
        amount = round((remote.expected(now_ms) - remote.recorded) * 1024) / 1024
        if amount:
            self._recorder.record_for_others(bucket, amount, now_ms)
            self._recorded += amount
            remote.recorded += amount

    def _record_past(self, past: _Past, now_ms: int) -> None:
        bucket = self.bucket
        if bucket is None or past.amount <= 0:
            return
        before = bucket.total
        during = (past.at_ms - 2 * past.age_ms, past.at_ms)
        self._recorder.record_for_others(bucket, past.amount, now_ms, during)
        self._recorded += bucket.total - before

    # How much may be used here.

    def adjust(self, outlook: Outlook) -> None:
        """Record what the others will have used by now, and reserve what is theirs."""
        bucket = self.bucket
        if bucket is None:
            return
        self._own.follow(self._own_total(), outlook.now_ms)
        if self._level is not None:
            level, self._level = self._level, None
            used = bucket.used(outlook.now_ms)
            self._heard_past.append(level._replace(amount=level.amount - used))
        for past in self._heard_past:
            self._record_past(past, outlook.now_ms)
        self._heard_past.clear()
        if outlook.cut_off is not None:
            reserved = self._reserved_cut_off(bucket, outlook, outlook.cut_off)
            self._recorder.reserve_for_others(bucket, *reserved)
            return
        self._share = None
        for member in [each for each, left in self._left.items() if not left.recent_at(outlook.now_ms, self._span_ms)]:
            del self._left[member]
        for remote in self._remotes.values():
            self._follow(bucket, remote, outlook.now_ms)
        while self._sent and self._sent[0].sequence <= outlook.heard_sequence:
            self._heard = self._sent[0]
            if len(self._sent) == 1:
                break
            self._sent.popleft()
        self._recorder.reserve_for_others(bucket, *self._reserved(bucket, outlook))

    def _reserved(self, bucket: SharedBucket, outlook: Outlook) -> tuple[float, float]:
        """Return what to leave to others while all are heard, and by which multiple of later usage it grows."""
        heard, now_ms = self._heard_usage(outlook.now_ms), outlook.now_ms
        part = self._part = self._part_of_room(heard, outlook)
        if part == 1.0 and not self._left and not self._active(now_ms):
            return 0.0, 0.0
        if heard is None:
            return self._reserved_unheard(bucket, outlook)
        if heard.entry.waiting and self._samples is not None:
            # Others take what fewer waiting clients leave as soon as they hear of it, not when this member knows that.
            waiting = min(heard.entry.waiting, self._sent[-1].entry.waiting) or heard.entry.waiting
            return self._reserved_contended(bucket, self._samples, waiting, now_ms)
        total, used = self._own_total(), bucket.used(now_ms)
        times = min(1.0 / part, outlook.members)
        # The others are expected to use as much of the room as their parts of it are to the part here.
        unheard = max(0.0, total - heard.expected(now_ms))
        reckoned = sum(max(0.0, each.recorded - each.entry.total) for each in self._remotes.values())
        room = max(0.0, bucket.capacity - (used - unheard - reckoned))
        amount = unheard * (times - 1.0) + (1.0 - part * times) * room - reckoned
        # No more than the rest of the capacity, for what was used too much is not to be waited for several times.
        return max(0.0, min(amount, bucket.capacity - used)), times - 1.0

    def _reserved_unheard(self, bucket: SharedBucket, outlook: Outlook) -> tuple[float, float]:
        """Return what to leave to others that know no usage here: all but an equal part, if that is left."""
        now_ms, capacity = outlook.now_ms, bucket.capacity
        # What they used, and what they will have used in the second until they hear of this member.
        theirs = sum(each.recent_at(now_ms, self._span_ms) + each.entry.rate for each in self._remotes.values())
        theirs += sum(each.recent_at(now_ms, self._span_ms) for each in self._left.values())
        allowed = min(max(capacity - theirs, IDLE_PART * capacity / outlook.members), capacity / outlook.members)
        used, unheard = bucket.used(now_ms), self._own.recent(self._own_total(), now_ms)
        excess = outlook.members * (unheard - allowed)
        return max(0.0, capacity - used + min(excess, DEBT_PART * capacity)), outlook.members - 1.0

    def _reserved_contended(
        self, bucket: SharedBucket, samples: ShareableRate, waiting: float, now_ms: int
    ) -> tuple[float, float]:
        """Return what to leave to others while clients wait here and the others know it."""
        part = waiting / (waiting + sum(each.entry.waiting for each in self._remotes.values()))
        used = bucket.used(now_ms)
        # The window of a rate grows from all samples but one to all, and falls back with each new sample.
        middle_ms, per_ms = self._span_ms - self._sample_ms // 2, bucket.capacity / (self._span_ms - self._sample_ms)
        capacity = per_ms * samples.window_ms(now_ms)
        recent = self._own_total() - self._own.total_at(now_ms - middle_ms)
        sparing = (*self._left.values(), *(each for each in self._remotes.values() if not each.entry.waiting))
        others = sum(each.recent_at(now_ms, middle_ms) for each in sparing)
        # What is missing from a whole window is not lent: the others may have used it already.
        excess = EXCESS_PART * max(0.0, used - capacity)
        amount = recent / part + others + excess + capacity - per_ms * middle_ms
        return min(amount, capacity * CAP) - used, 1.0 / part - 1.0

    def _heard_usage(self, now_ms: int) -> Reckoning | None:
        """Return what all others know of the usage here since it began, None where they know nothing yet."""
        heard = self._heard
        if heard is None or heard.at_ms < self._own.since_ms or not self._own.is_active(now_ms):
            return None
        return heard

    def _part_of_room(self, heard: Reckoning | None, outlook: Outlook) -> float:
        """Return the part of the room that may be used here before the others hear of it."""
        if outlook.members == 1:
            return 1.0
        active = self._active(outlook.now_ms)
        idle = IDLE_PART / outlook.members
        if heard is None:
            return 1.0 / outlook.members
        waiting = sum(each.entry.waiting for each in active)
        if heard.entry.waiting:
            return max(idle, heard.entry.waiting / (waiting + heard.entry.waiting))
        return 1.0 / (len(active) + 1)

    def _active(self, now_ms: int) -> list[RemoteUsage]:
        return [each for each in self._remotes.values() if each.changed_ms > now_ms - self._span_ms]

    def _reserved_cut_off(self, bucket: SharedBucket, outlook: Outlook, fallback: Fallback) -> tuple[float, float]:
        if fallback is Fallback.WHOLE:
            return 0.0, 0.0
        if fallback is Fallback.CLOSED:
            return bucket.capacity * _CLOSED, 0.0
        if self._share is None:
            self._share = self._used_share(outlook)
        share = max(self._share, IDLE_PART / outlook.members)
        recent = self._own.recent(self._own_total(), outlook.now_ms)
        return recent / share - bucket.used(outlook.now_ms), 1.0 / share - 1.0

    def _used_share(self, outlook: Outlook) -> float:
        own, theirs = float(self._own.waiting), float(sum(each.entry.waiting for each in self._remotes.values()))
        if own + theirs < 1:
            own, theirs = self._own_rate(outlook.now_ms), sum(each.entry.rate for each in self._remotes.values())
        return own / (own + theirs) if own + theirs else 1.0 / outlook.members
