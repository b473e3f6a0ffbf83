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
from math import ceil
from typing import Final, TypeAlias

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

    __slots__ = ("is_waiting", "on_turn", "parts", "queue", "request", "reserved", "since_ms")

    def __init__(self) -> None:
        self.queue: AnyFetchQueue | None = None
        """The queue where its Fetch waits or is in flight, None for none."""
        self.parts: dict[FetchQueue, FetchTurn] = {}
        """Its places at the queues of a client in groups, each for the same Fetch."""
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
        if not (at_once or self.is_open(turn, now_ms)):
            self.wait(turn, now_ms)
            return None
        size = self.size(turn, asked, now_ms)
        self.leave(turn, now_ms)
        turn.queue, turn.reserved = self, size
        self._in_flight += 1
        self._reserved += size
        return int(size)

    def size(self, turn: FetchTurn, asked: float, now_ms: int) -> float:
        """Return the largest size in bytes of a Fetch that begins now."""
        least, room = self._least_and_room(turn, now_ms)
        return max(least, min(asked, self._capacity(), room / self._contenders(turn)))

    def is_open(self, turn: FetchTurn, now_ms: int) -> bool:
        """Return whether a Fetch may begin now."""
        least, room = self._least_and_room(turn, now_ms)
        return least <= room and not self._is_behind(turn)

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

    def wait(self, turn: FetchTurn, now_ms: int) -> None:
        """Queue a Fetch, behind all that wait already."""
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


class GroupFetchQueue:
    """The queues that Fetches of a client in groups pass: its own bucket's and those of the groups.

    A Fetch is in flight at all of them. While a group is below its guaranteed rate, the queues of the groups around it
    let its Fetches pass: one that waits for room in a limit waits for room in the guaranteed rates within it as well.

    Args:
        own: The queue of the client's own bucket, None without a limit.
        around: The queues of the groups' guaranteed rates and limits, and whether each is of a guaranteed rate; the
            outermost group first, the guaranteed rate of each before its limit.
        on_wait: Receives the bucket whose limit a Fetch has to wait for.
    """

    __slots__ = ("_around", "_on_wait", "_own", "_queues")

    def __init__(
        self,
        own: FetchQueue | None,
        around: Sequence[tuple[FetchQueue, bool]],
        on_wait: Callable[[QuotaBucket], object],
    ) -> None:
        self._on_wait = on_wait
        self._own = own
        self._around = around
        self._queues = [*(() if own is None else (own,)), *(queue for queue, _ in around)]

    def enter(self, turn: FetchTurn, asked: float, now_ms: int, *, at_once: bool = False) -> int | None:
        """Let a Fetch begin and return its largest size in bytes, or queue it and return None."""
        if isinstance(turn.queue, FetchQueue):
            turn.leave(now_ms)  # it waits at its own bucket, and its client has come into groups
        for queue in [each for each in turn.parts if each not in self._queues]:
            turn.parts.pop(queue).leave(now_ms)  # the client's groups or their limits have changed
        closed, size = self._closed_and_size(turn, asked, now_ms, at_once=at_once)
        if closed and not at_once:
            if not turn.is_waiting:
                turn.since_ms = now_ms
            for queue, part in turn.parts.items():
                if queue not in closed:
                    part.leave(now_ms)
            for queue in closed:
                queue.wait(self._part(turn, queue), now_ms)
            turn.queue, turn.is_waiting = self, True
            self._on_wait(closed[0].bucket)
            return None
        for queue in self._queues:
            queue.enter(self._part(turn, queue), size, now_ms, at_once=True)
        turn.queue, turn.is_waiting = self, False
        return int(size)

    def opens_ms(self, turn: FetchTurn, now_ms: int) -> int | None:
        """Return the time at which a waiting Fetch may begin, None while another is before it."""
        closed, _ = self._closed_and_size(turn, 0.0, now_ms)
        found = [queue.opens_ms(self._part(turn, queue), now_ms) for queue in closed]
        return min((at_ms for at_ms in found if at_ms is not None), default=None) if closed else now_ms

    def wait_ms(self, turn: FetchTurn, now_ms: int) -> int:
        """Return the throttle time in ms of a Fetch that can't wait here any longer."""
        return max(1, self._longest(lambda queue: self._wait_ms(queue, self._part(turn, queue), now_ms)))

    def answered(self, turn: FetchTurn, size: float, now_ms: int) -> int:
        """End a Fetch in flight by the size of its response, before that is recorded: see `FetchQueue`."""
        turn.queue = turn.request = None
        return self._longest(lambda queue: queue.answered(self._part(turn, queue), size, now_ms))

    def throttle_ms(self, bucket_ms: int, now_ms: int) -> int:
        """Return the throttle time in ms of a response that was recorded, by the buckets' own for it."""
        return self._longest(lambda queue: queue.throttle_ms(bucket_ms, now_ms))

    def leave(self, turn: FetchTurn, now_ms: int) -> None:
        """Give up a turn's places."""
        turn.queue = turn.request = None
        turn.is_waiting = False
        for part in turn.parts.values():
            part.leave(now_ms)

    def _part(self, turn: FetchTurn, queue: FetchQueue) -> FetchTurn:
        part = turn.parts.get(queue)
        if part is None:
            part = turn.parts[queue] = FetchTurn()
        part.on_turn = turn.on_turn
        return part

    def _closed_and_size(
        self, turn: FetchTurn, asked: float, now_ms: int, *, at_once: bool = False
    ) -> tuple[list[FetchQueue], float]:
        """Return the queues any of which has to open before a Fetch may begin, and the size of one that does.

        Room in a guaranteed rate is room in all that is around it, and the lack of it takes away none.
        """
        closed, size = list[FetchQueue](), asked
        for queue, is_guaranteed in self._around:
            part = self._part(turn, queue)
            is_open = queue.is_open(part, now_ms)
            most = queue.size(part, asked, now_ms) if is_open or at_once else 0.0
            if not is_guaranteed:
                closed, size = closed or ([] if is_open else [queue]), min(size, most)
            elif is_open:
                closed, size = [], max(size, most)
            elif closed:
                closed.append(queue)
        if self._own is not None:
            part = self._part(turn, self._own)
            closed = closed if self._own.is_open(part, now_ms) else [self._own]
            size = min(size, self._own.size(part, asked, now_ms))
        return closed, size

    @staticmethod
    def _wait_ms(queue: FetchQueue, part: FetchTurn, now_ms: int) -> int:
        return 0 if queue.is_open(part, now_ms) else queue.wait_ms(part, now_ms)

    def _longest(self, time_ms: Callable[[FetchQueue], int]) -> int:
        """Return the time that all queues together require, where a guaranteed rate bounds what is around it."""
        around_ms = 0
        for queue, is_guaranteed in self._around:
            around_ms = min(around_ms, time_ms(queue)) if is_guaranteed else max(around_ms, time_ms(queue))
        return around_ms if self._own is None else max(around_ms, time_ms(self._own))


AnyFetchQueue: TypeAlias = FetchQueue | GroupFetchQueue

_LEAST_S: Final = 1.0
"""The time whose limit is the least capacity."""
_NEVER_MS: Final = 3_600_000
"""The time after which a limit of 0 is looked at again."""


def _ignore() -> None:
    pass
