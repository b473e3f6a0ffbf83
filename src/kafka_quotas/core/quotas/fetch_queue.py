"""The queue before a bucket's Fetches: how many may be in flight, how long each may be, and whose turn is next.

A fetch is charged by its response, so without a queue every connection gets one however deep its bucket is in debt. The
queue keeps a level beside the bucket: all that is recorded there, minus the limit per second, never below 0. A Fetch
begins while the level and the Fetches in flight, counted at the size that their requests ask for at most, leave room
for it. Others wait, first come, first served. A response that turns out longer than that is delivered if it fits all
the same, or is longer than the capacity and finds little else; otherwise its client gets none of its records.

Invariants, for any connections, sizes and times: what is delivered stays within the limit per second and 1 1/4 of the
capacity, or a quarter of it and one response; while Fetches wait, or come again in time, some Fetch of the bucket is
served. The level follows the bucket's total, so it holds what other processes recorded there;
what they have in flight is theirs alone.

No I/O and no clock: `on_turn` notifies the shell.
"""

from collections import OrderedDict
from collections.abc import Callable
from math import ceil
from typing import Final

from kafka_quotas.core.quotas.quota_bucket import QuotaBucket

LONGEST_MS: Final = 10_000
"""The longest time that a client has to wait for a fetch at once: it is held again if that was too short."""
_PARTS: Final = 16
"""The part of the capacity that all Fetches in flight reserve at least: small enough for clients that only wait."""
_SLACK: Final = 1 / 8
"""The part of the capacity by which Fetches in flight may exceed it."""
_EXCESS: Final = 1 / 4
"""The part of the capacity by which deliveries may exceed it: responses may be a little longer than was asked for."""
_FADE: Final = 7 / 8
"""What is left of the length of a long response after each one that is not as long."""


class FetchTurn:
    """The place of one connection at a queue, with its Fetch in flight or the one that waits."""

    __slots__ = ("is_waiting", "on_turn", "queue", "request", "reserved", "since_ms")

    def __init__(self) -> None:
        self.queue: FetchQueue | None = None
        """The queue where its Fetch waits or is in flight, None for none."""
        self.request: object | None = None
        self.reserved = 0.0
        """The bytes that its Fetch in flight is counted with."""
        self.is_waiting = False
        self.since_ms = 0
        self.on_turn: Callable[[], object] = _ignore
        """Callback for a waiting Fetch that may begin now; it must not begin at once, as another one is at work."""

    def leave(self, now_ms: int) -> None:
        """Give up the place of a Fetch that is no longer wanted, in flight or not."""
        if self.queue is not None:
            self.queue.leave(self, now_ms)


class FetchQueue:
    """The queue of one bucket.

    Args:
        bucket: The bucket, whose total the queue follows.
        limit: The limit per second.
        waited_at: The queues where a Fetch waits; this one adds and removes itself.
        now_ms: The time.
    """

    __slots__ = (
        "_at_ms",
        "_batch",
        "_in_flight",
        "_level",
        "_limit",
        "_reserved",
        "_total",
        "_waited_at",
        "_waiting",
        "bucket",
    )

    def __init__(self, bucket: QuotaBucket, limit: float, waited_at: "dict[FetchQueue, None]", now_ms: int) -> None:
        self.bucket = bucket
        self._limit = limit
        self._level = bucket.used(now_ms)
        self._total = bucket.total
        self._at_ms = now_ms
        self._batch = 0.0  # the length of the last response that was longer than reserved, less with each that was not
        self._in_flight = 0
        self._reserved = 0.0
        self._waiting: OrderedDict[FetchTurn, None] = OrderedDict()
        self._waited_at = waited_at
        self._bound_level()

    def enter(self, turn: FetchTurn, asked: float, now_ms: int, *, at_once: bool = False) -> int | None:
        """Let a Fetch begin and return its largest size in bytes, or queue it and return None.

        Args:
            turn: The turn of the connection, which has no Fetch in flight.
            asked: The size that the client asks for.
            now_ms: The time.
            at_once: Whether to let it begin in any case.
        """
        least, room = self._least_and_room(turn, now_ms)
        if not at_once and (least > room or self._is_behind(turn)):
            self._queue(turn, now_ms)
            return None
        contenders = self._contenders(turn)
        self.leave(turn, now_ms)
        size = max(least, min(asked, self._capacity(), room / contenders))
        turn.queue, turn.reserved = self, size
        self._in_flight += 1
        self._reserved += size
        return int(size)

    def opens_ms(self, turn: FetchTurn, now_ms: int) -> int | None:
        """Return the time at which a waiting Fetch may begin, None while another is before it."""
        if self._is_behind(turn):
            return None
        least, room = self._least_and_room(turn, now_ms)
        return now_ms + self._time_ms(least - room)

    def wait_ms(self, turn: FetchTurn, now_ms: int) -> int:
        """Return the throttle time in ms of a Fetch that can't wait here any longer."""
        least, room = self._least_and_room(turn, now_ms)
        return min(self._time_ms(least * self._contenders(turn) - room), LONGEST_MS)

    def answered(self, turn: FetchTurn, size: float, now_ms: int) -> int:
        """End a Fetch in flight by the size of its response, before that is recorded.

        Returns:
            0 for a response that may be delivered, otherwise the time in ms after which one of its size may be.
        """
        self._batch = size if size > turn.reserved else self._batch * _FADE
        self.leave(turn, now_ms)
        level, capacity = self._drained(now_ms), self._capacity()
        excess = level + min(size, capacity) - capacity * (1 + _EXCESS)
        return 0 if excess <= 0 else min(self._time_ms(excess), LONGEST_MS)

    def throttle_ms(self, bucket_ms: int, now_ms: int) -> int:
        """Return the throttle time in ms of a response that was recorded, by the bucket's own for it.

        A window's throttle time repeats what the level makes up for already, and is longer than what is over for that.
        Only with what a fleet reserves for others it is all that holds a client to its part.
        """
        over = self._drained(now_ms) - self._capacity()
        if self.bucket.reserved:
            return min(bucket_ms, LONGEST_MS)
        return min(bucket_ms, LONGEST_MS, self._time_ms(over)) if over > 0 else 0

    def leave(self, turn: FetchTurn, now_ms: int) -> None:
        """Give up a turn's place in the queue or in flight, which may let the next Fetch begin."""
        if turn.queue is not self:
            turn.leave(now_ms)
            return
        turn.queue = turn.request = None
        if turn.is_waiting:
            turn.is_waiting = False
            was_behind = self._is_behind(turn)
            del self._waiting[turn]
            if not self._waiting:
                del self._waited_at[self]
            elif not was_behind:
                self._call_next()
            return
        self._in_flight -= 1
        self._reserved = self._reserved - turn.reserved if self._in_flight else 0.0
        self._call_next()

    def follow(self, limit: float, now_ms: int) -> "FetchQueue":
        """Take up the limit of the bucket, and return the queue."""
        if limit != self._limit:
            self._drained(now_ms)
            self._limit = limit
            self._bound_level()
        return self

    def call_all(self) -> None:
        """Have every waiting Fetch looked at again."""
        for turn in self._waiting:
            turn.on_turn()

    def _call_next(self) -> None:
        if self._waiting:
            next(iter(self._waiting)).on_turn()

    def _is_behind(self, turn: FetchTurn) -> bool:
        return bool(self._waiting) and next(iter(self._waiting)) is not turn

    def _queue(self, turn: FetchTurn, now_ms: int) -> None:
        if turn.queue is self:
            return
        turn.leave(now_ms)
        turn.queue, turn.is_waiting, turn.since_ms = self, True, now_ms
        self._waiting[turn] = None
        self._waited_at[self] = None

    def _contenders(self, turn: FetchTurn) -> int:
        return self._in_flight + len(self._waiting) + (turn.queue is not self)

    def _least_and_room(self, turn: FetchTurn, now_ms: int) -> tuple[float, float]:
        """Return how much a Fetch has to find free, and how much is."""
        level, capacity = self._drained(now_ms), self._capacity()
        least = min(max(capacity / (_PARTS * self._contenders(turn)), self._batch), capacity)
        return least, capacity * (1 + _SLACK) - level - self._reserved

    def _drained(self, now_ms: int) -> float:
        total = self.bucket.total
        if total != self._total:
            # All since the last look counts as of the latest record.
            recorded_ms = self.bucket.recorded_ms or 0
            self._drain(max(self._at_ms, min(recorded_ms, now_ms)))
            self._level = max(0.0, self._level + total - self._total)
            self._total = total
        self._drain(now_ms)
        return self._level

    def _drain(self, now_ms: int) -> None:
        self._level = max(0.0, self._level - self._limit * (max(0, now_ms - self._at_ms) / 1000.0))
        self._at_ms = now_ms

    def _bound_level(self) -> None:
        # What was recorded under another limit, or under none, is no debt of this one.
        self._level = min(self._level, self._capacity() * (1 + _EXCESS))

    def _capacity(self) -> float:
        # A window of one sample has none (`samples - 1`), and the broker needs to hear a size to return anything.
        return max(self.bucket.capacity, self._limit * _LEAST_S)

    def _time_ms(self, amount: float) -> int:
        """Return the time in ms after which this amount has drained: at least 1."""
        per_ms = self._limit / 1000.0
        if amount <= 0:
            return 1
        return min(ceil(amount / per_ms), _NEVER_MS) if per_ms else _NEVER_MS


_LEAST_S: Final = 1.0
"""The time whose limit is the least capacity."""
_NEVER_MS: Final = 3_600_000
"""The time after which a limit of 0 is looked at again."""


def _ignore() -> None:
    pass
