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
from collections.abc import Callable, Sequence
from math import ceil, inf
from typing import Final

from kafka_quotas.core.quotas.quota_bucket import QuotaBucket, longest_wait

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
    """The places of one connection at queues, all of its Fetch in flight or of the one that waits."""

    __slots__ = ("is_waiting", "on_turn", "path", "queues", "request", "since_ms")

    def __init__(self) -> None:
        self.path: FetchPath | None = None
        """The queues that its Fetch passes, None without one."""
        self.queues: list[FetchQueue] = []
        """Where it waits or is in flight."""
        self.request: object | None = None
        self.is_waiting = False
        self.since_ms = 0
        self.on_turn: Callable[[], object] = lambda: None
        """Callback for a waiting Fetch that may begin now; it must not begin at once, as another one is at work."""

    def leave(self) -> None:
        """Give up the places of a Fetch that is no longer wanted, in flight or not."""
        self.path = self.request = None
        self.is_waiting = False
        while self.queues:
            self.queues[-1].leave(self)


class FetchQueue:
    """The queue of one bucket.

    Args:
        bucket: The bucket, whose total the queue follows.
        limit: The limit per second.
        waited_at: The queues where a Fetch waits; this one adds and removes itself.
        now_ms: The time.
    """

    def __init__(self, bucket: QuotaBucket, limit: float, waited_at: "dict[FetchQueue, None]", now_ms: int) -> None:
        self.bucket = bucket
        self._limit = limit
        self._level = bucket.used(now_ms)
        self._total = bucket.total
        self._at_ms = now_ms
        self._batch = 0.0  # the length of the last response that was longer than reserved, less with each that was not
        self._in_flight: dict[FetchTurn, float] = {}  # the bytes that each is counted with
        self._reserved = 0.0  # their sum
        self._waiting: OrderedDict[FetchTurn, None] = OrderedDict()
        self._waited_at = waited_at
        self._bound_level()

    def begin(self, turn: FetchTurn, size: float) -> None:
        """Let a Fetch begin that is counted with this size."""
        if turn.queues:
            self.leave(turn)
        turn.queues.append(self)
        self._in_flight[turn] = size
        self._reserved += size

    def look(self, turn: FetchTurn, asked: float, now_ms: int) -> tuple[bool, float]:
        """Return whether a Fetch may begin now, and its largest size in bytes if it does."""
        least, room, most = self._least_and_room(turn, now_ms)
        return least <= room and not self._is_behind(turn), max(least, min(asked, most))

    def opens_ms(self, turn: FetchTurn, now_ms: int) -> int | None:
        """Return the time at which a waiting Fetch may begin, None while another is before it."""
        if self._is_behind(turn):
            return None
        least, room, _ = self._least_and_room(turn, now_ms)
        return now_ms + self._time_ms(least - room)

    def wait_ms(self, turn: FetchTurn, now_ms: int) -> int:
        """Return the throttle time in ms of a Fetch that can't wait here any longer."""
        least, room, _ = self._least_and_room(turn, now_ms)
        return min(self._time_ms(least * self._contenders(turn) - room), LONGEST_MS)

    def answered(self, turn: FetchTurn, size: float, now_ms: int) -> int:
        """End a Fetch in flight by the size of its response, before that is recorded.

        Returns:
            0 for a response that may be delivered, otherwise the time in ms after which one of its size may be.
        """
        self._batch = size if size > self._in_flight.get(turn, 0.0) else self._batch * _FADE
        self.leave(turn)
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

    def wait(self, turn: FetchTurn) -> None:
        """Queue a Fetch, behind all that wait already."""
        if turn not in self._waiting:
            self.leave(turn)
            turn.queues.append(self)
            self._waiting[turn] = self._waited_at[self] = None

    def leave(self, turn: FetchTurn) -> None:
        """Give up a turn's place in the queue or in flight, which may let the next Fetch begin."""
        if self not in turn.queues:
            return
        was_behind = turn in self._waiting and self._is_behind(turn)
        turn.queues.remove(self)
        self._waiting.pop(turn, None)
        reserved = self._in_flight.pop(turn, 0.0)
        self._reserved = self._reserved - reserved if self._in_flight else 0.0
        if not self._waiting:
            self._waited_at.pop(self, None)
        elif not was_behind:
            next(iter(self._waiting)).on_turn()

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

    def _is_behind(self, turn: FetchTurn) -> bool:
        return bool(self._waiting) and next(iter(self._waiting)) is not turn

    def _contenders(self, turn: FetchTurn) -> int:
        return len(self._in_flight) + len(self._waiting) + (self not in turn.queues)

    def _least_and_room(self, turn: FetchTurn, now_ms: int) -> tuple[float, float, float]:
        """Return how much a Fetch has to find free, how much is, and how much of that it may take."""
        capacity, contenders = self._capacity(), self._contenders(turn)
        least = min(max(capacity / (_PARTS * contenders), self._batch), capacity)
        room = capacity * (1 + _SLACK) - self._drained(now_ms) - self._reserved
        return least, room, min(capacity, room / contenders)

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
        if now_ms > self._at_ms:
            self._level = max(0.0, self._level - self._limit * ((now_ms - self._at_ms) / 1000.0))
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


class FetchPath:
    """The queues that the Fetches of a client pass: those of the groups around it, and its own bucket's.

    A Fetch is in flight at all of them. While a group is below its guaranteed rate, the queues of the groups around it
    let its Fetches pass: one that waits for room in a limit waits for room in the guaranteed rates within it as well.

    Args:
        queues: The queues of guaranteed rates and limits, and whether each is of a guaranteed rate; the outermost group
            first, the guaranteed rate of each before its limit, the client's own last.
        own: The client's own bucket, None without one.
        on_wait: Receives the bucket whose limit a Fetch has to wait for, None if there is but one.
    """

    def __init__(
        self,
        queues: Sequence[tuple[FetchQueue, bool]],
        own: QuotaBucket | None,
        on_wait: Callable[[QuotaBucket], object] | None,
    ) -> None:
        self._queues = queues
        self._all = [queue for queue, _ in queues]
        self._own = own
        self._on_wait = on_wait

    def enter(self, turn: FetchTurn, asked: float, now_ms: int, *, at_once: bool = False) -> int | None:
        """Let a Fetch begin and return its largest size in bytes, or queue it and return None.

        Args:
            turn: The turn of the connection, which has no Fetch in flight.
            asked: The size that the client asks for.
            now_ms: The time.
            at_once: Whether to let it begin in any case.
        """
        closed, size = self._closed_and_size(turn, asked, now_ms, at_once=at_once)
        is_waiting = bool(closed) and not at_once
        passed = closed if is_waiting else self._all
        for queue in [*turn.queues]:
            if queue not in passed:  # the client may be in other groups by now
                queue.leave(turn)
        if is_waiting:
            for queue in closed:
                queue.wait(turn)
            turn.since_ms = turn.since_ms if turn.is_waiting else now_ms
            if self._on_wait is not None:
                self._on_wait(closed[0].bucket)
        else:
            for queue in passed:
                queue.begin(turn, size if len(passed) == 1 else queue.look(turn, size, now_ms)[1])
        turn.path, turn.is_waiting = self, is_waiting
        return None if is_waiting else int(size)

    def opens_ms(self, turn: FetchTurn, now_ms: int) -> int | None:
        """Return the time at which a waiting Fetch may begin, None while another is before it."""
        closed, _ = self._closed_and_size(turn, 0.0, now_ms)
        found = [queue.opens_ms(turn, now_ms) for queue in closed]
        return min((at_ms for at_ms in found if at_ms is not None), default=None) if closed else now_ms

    def wait_ms(self, turn: FetchTurn, now_ms: int) -> int:
        """Return the throttle time in ms of a Fetch that can't wait here any longer."""
        return max(
            1, self._longest_ms(lambda each: 0 if each.look(turn, 0.0, now_ms)[0] else each.wait_ms(turn, now_ms))
        )

    def answered(self, turn: FetchTurn, size: float, now_ms: int) -> int:
        """End a Fetch in flight by the size of its response, before that is recorded.

        Returns:
            0 for a response that may be delivered, otherwise the time in ms after which one of its size may be.
        """
        turn.path = turn.request = None
        return self._longest_ms(lambda queue: queue.answered(turn, size, now_ms))

    def throttle_ms(self, bucket_ms: int, now_ms: int) -> int:
        """Return the throttle time in ms of a response that was recorded, by the buckets' own for it."""
        return self._longest_ms(lambda queue: queue.throttle_ms(bucket_ms, now_ms))

    def _closed_and_size(
        self, turn: FetchTurn, asked: float, now_ms: int, *, at_once: bool = False
    ) -> tuple[list[FetchQueue], float]:
        """Return the queues any of which has to open before a Fetch may begin, and the size of one that does.

        Room in a guaranteed rate is room in all that is around it, and the lack of it takes away none.
        """
        if len(self._all) == 1:  # as for most clients, whom the rest would cost a fifth more
            is_open, size = self._all[0].look(turn, asked, now_ms)
            return [] if is_open else self._all, size
        closed, size = list[FetchQueue](), inf
        for queue, is_guaranteed in self._queues:
            is_open, most = queue.look(turn, asked, now_ms)
            most = most if is_open or at_once else 0.0
            if not is_guaranteed:
                size = min(size, most)
                if not is_open and (not closed or queue.bucket is self._own):
                    closed = [queue]
            elif is_open:
                closed, size = [], max(size, most)
            elif closed:
                closed.append(queue)
        return closed, size

    def _longest_ms(self, time_ms: Callable[[FetchQueue], int]) -> int:
        if len(self._queues) == 1:  # as above
            return time_ms(self._queues[0][0])
        return longest_wait((queue, is_guaranteed, time_ms(queue)) for queue, is_guaranteed in self._queues)[0]


_LEAST_S: Final = 1.0
"""The time whose limit is the least capacity."""
_NEVER_MS: Final = 3_600_000
"""The time after which a limit of 0 is looked at again."""
