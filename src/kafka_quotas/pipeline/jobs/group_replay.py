"""The replay of a proposal with groups of clients: one decision after the other, by the limiters of `core`.

Contract: a client is charged at its own bucket and at those of all groups around it, and gets the longest throttle time
of them; a limit around a group that is below its guaranteed rate counts for nothing. What one bucket refuses is charged
at none. A client's bucket has the throttle times that its events got, whichever bucket required them; a group's has the
events of all its clients, and the throttle times that its limit required.

Events happen by time, then by amount and client, whatever order they come in. In a closed loop the clients of one
bucket are one client, but those of a group are as many. Events that wait are in memory.
"""

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import count

import numpy as np

from kafka_quotas.core.metrics.throttle_time import MAX_ATTEMPTS
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_key import QuotaType, RateAlgorithm
from kafka_quotas.core.quotas.quota_manager import ClientQuotaManager, Limiter
from kafka_quotas.core.resolution.quota_resolver import GROUP_USER, NEVER, Bucket, QuotaResolver, bucket_tags
from kafka_quotas.pipeline.buckets.charges import Charges
from kafka_quotas.pipeline.buckets.proposal import BucketName, ProposedQuotas
from kafka_quotas.pipeline.kernels import loop
from kafka_quotas.pipeline.kernels.admission import FAR_MS, FETCH, RECORD, STRICT
from kafka_quotas.pipeline.kernels.limiters import LimiterRule


@dataclass(slots=True)
class _Event:
    due_ms: int
    amount: float
    client: BucketName
    lane: "ReplayedBucket"
    """Its client's bucket when it began, whose next event begins after it."""
    rest: float
    start_ms: int = 0
    attempts: int = 0
    held_by: set[Bucket] = field(default_factory=set)


class ReplayedBucket:
    """What a replay knows of one bucket, with its limit as it was when it was last in use."""

    def __init__(self, name: BucketName) -> None:
        self.name = name
        self.limit: float | None = None
        self.counts = np.array(loop.FRESH, dtype=np.int64)
        """Those of a lane of `kernels.loop`."""
        self.amount = 0.0
        self.spans: list[list[int]] = []
        """Begin and end (ms), events, and the longest delay of one (ms)."""
        self.steps: Counter[int] = Counter()
        """Throttle times by the steps of a histogram."""
        self.queue: deque[_Event] = deque()
        """The events that wait for the end of the one before, in a closed loop."""
        self.is_busy = False
        self.free_ms = -FAR_MS

    def hold(self, now_ms: int, throttle_ms: int, *, admitted: bool) -> None:
        """Add an attempt that was throttled or refused."""
        if throttle_ms > 0:
            loop.tally_throttle(self.counts, 0, now_ms, throttle_ms)
            self.steps[loop.step_of(throttle_ms)] += 1
        self.counts[loop.REFUSALS] += not admitted

    def end(self, event: _Event, now_ms: int, end_ms: int, *, throttled: bool) -> None:
        """Add an event with its last attempt, and the end of the delay after it."""
        loop.tally_event(self.counts, 0, now_ms, end_ms, now_ms - event.due_ms, throttled)
        if throttled and end_ms > event.start_ms:
            self.spans.append([event.start_ms, end_ms, 1, end_ms - event.start_ms])
        while len(self.spans) > 1 and self.spans[-1][0] <= self.spans[-2][1]:
            (begin_ms, *last), (other_ms, *other) = self.spans.pop(), self.spans.pop()
            merged = max(last[0], other[0]), last[1] + other[1], max(last[2], other[2])
            self.spans.append([min(begin_ms, other_ms), *merged])

    def percentiles_ms(self, shares: Sequence[float]) -> list[float]:
        """Return the throttle time in ms that each share of its throttle times does not exceed, 0 without any."""
        if not self.steps:
            return [0.0 for _ in shares]
        pool, chosen = np.zeros((1, loop.STEPS), dtype=np.uint32), np.zeros(1, dtype=np.int64)
        pool[0, list(self.steps)] = list(self.steps.values())
        return [float(loop.percentiles_ms(pool, chosen, share)[0]) for share in shares]


@dataclass(slots=True)
class _Client:
    limiter: Limiter
    groups: dict[Bucket, ReplayedBucket]
    own: ReplayedBucket
    generation: int = NEVER


class GroupReplay:
    """A proposal's quotas of one type with its groups, replayed by one rule."""

    def __init__(self, quotas: ProposedQuotas, quota_type: QuotaType, rule: LimiterRule) -> None:
        assert quotas.groups is not None
        self._quota_type, self._groups, self.rule = quota_type, quotas.groups, rule
        self._limits = QuotaResolver()
        for bound in self._groups.tree.bounds():
            if bound.key == quota_type.key.name:
                self._limits.update_group(bound.bucket, bound.rate)
        self._stated: dict[tuple[bool, Entity], float] = {}
        self._put_in_force(quotas)
        self._later = list(quotas.later)
        self._managers: dict[tuple[str, int], tuple[ClientQuotaManager, ClientQuotaManager]] = {}
        self._clients: dict[BucketName, _Client] = {}
        self._buckets: dict[BucketName, ReplayedBucket] = {}
        self._waiting: list[tuple[int, int, float, BucketName, int, _Event]] = []
        self._numbers = count()

    def run(self, charges: Charges, clients: Sequence[BucketName]) -> None:
        """Replay charges of clients by number, none of which comes before those of the last call."""
        names = [clients[number] for number in charges.clients.tolist()]
        events = zip(charges.times_ms.tolist(), charges.amounts.tolist(), names, strict=True)
        for due_ms, amount, name in sorted(events):
            self._advance(due_ms)
            lane = self._client(name, due_ms).own
            event = _Event(due_ms, amount, name, lane, amount)
            if self.rule.closed and lane.is_busy:
                lane.queue.append(event)
            else:
                self._begin(event)

    def buckets(self) -> list[ReplayedBucket]:
        """Replay what still waits, and return the buckets that events were charged at."""
        self._advance(None)
        return [bucket for bucket in self._buckets.values() if bucket.counts[loop.EVENTS]]

    def _advance(self, until_ms: int | None) -> None:
        """Have all happen that comes before a time, None for all."""
        while self._waiting and (until_ms is None or self._waiting[0][0] < until_ms):
            now_ms, *_, event = heappop(self._waiting)
            self._happen(event, now_ms)

    def _begin(self, event: _Event) -> None:
        event.lane.is_busy = True
        event.start_ms = max(event.due_ms, event.lane.free_ms) if self.rule.closed else event.due_ms
        self._wait(event, event.start_ms)

    def _wait(self, event: _Event, until_ms: int) -> None:
        heappush(self._waiting, (until_ms, event.due_ms, event.amount, event.client, next(self._numbers), event))

    def _happen(self, event: _Event, now_ms: int) -> None:
        client, operation, closed = self._client(event.client, now_ms), self.rule.operation, self.rule.closed
        limiter, own = client.limiter, client.own
        most = limiter.max_value(now_ms) if operation == FETCH else None
        value = min(event.rest, most) if most else event.rest
        if operation == STRICT:
            refusal = limiter.mutation_quota(strict=True).record(value, now_ms)
            throttle_ms, admitted = (0, True) if refusal is None else (refusal.throttle_ms, False)
        else:
            throttle_ms = limiter.record(value, now_ms)
            admitted = operation == RECORD or throttle_ms <= 0
            if not admitted:  # as a broker answers empty and takes its charge back
                limiter.unrecord(value, now_ms)
        if (throttle_ms > 0 or not admitted) and (deciding := limiter.state) is not None:
            group = client.groups.get(deciding.name)
            for bucket in (own,) if group is None else (own, group):
                bucket.hold(now_ms, throttle_ms, admitted=admitted)
            if throttle_ms > 0:
                event.held_by.add(deciding.name)
        if admitted:
            event.rest -= value
            for bucket in (own, *client.groups.values()):
                bucket.amount += value
        end_ms = now_ms + loop.wait_after(operation, admitted, closed, throttle_ms)
        event.attempts += 1
        again = operation == FETCH and event.rest > 0.0 if admitted else closed
        if again and event.attempts < MAX_ATTEMPTS:
            self._wait(event, end_ms)
            return
        own.end(event, now_ms, end_ms, throttled=bool(event.held_by))
        for name, bucket in client.groups.items():
            bucket.end(event, now_ms, end_ms, throttled=name in event.held_by)
        event.lane.is_busy, event.lane.free_ms = False, end_ms
        if event.lane.queue:
            self._begin(event.lane.queue.popleft())

    def _client(self, name: BucketName, now_ms: int) -> _Client:
        """Return a client with its bucket by the quotas in force."""
        while self._later and now_ms >= self._later[0][0]:
            self._put_in_force(self._later.pop(0)[1])
        limits, client = self._limits, self._clients.get(name)
        if client is None:
            client = self._clients[name] = self._new_client(name)
        if client.generation != limits.generation:
            names = name.user, name.client_id
            bucket = limits.bucket(*names) if limits.enabled else names
            client.own, client.generation = self._bucket(name, bucket, limits.limit(bucket)), limits.generation
        return client

    def _put_in_force(self, quotas: ProposedQuotas) -> None:
        limits, was = self._limits, self._stated
        self._stated = {(False, entity): limit for entity, limit in quotas.stored.items()}
        self._stated |= {(True, entity): limit for entity, limit in quotas.static.items()}
        for (is_static, entity), _ in self._stated.items() ^ was.items():
            limit = self._stated.get((is_static, entity))
            (limits.update_static if is_static else limits.update)(entity, limit)

    def _new_client(self, name: BucketName) -> _Client:
        if name[:2] not in self._managers:
            made = partial(ClientQuotaManager, self._quota_type, self.rule.window, limits=self._limits)
            self._managers[name[:2]] = made(), made(RateAlgorithm.SMOOTH)
        own, around = self._managers[name[:2]]
        group = self._groups.group_of(name.user, name.client_id)
        bounds = self._groups.tree.bounds_around(group, self._quota_type.key.name)
        limiter = Limiter(own, name.user, name.client_id, [bound.bucket for bound in bounds], around)
        groups = {
            bound.bucket: self._bucket(name, bucket_tags(bound.bucket), bound.rate)
            for bound in bounds
            if bound.mark == GROUP_USER
        }
        return _Client(limiter, groups, ReplayedBucket(name))

    def _bucket(self, client: BucketName, bucket: Bucket, limit: float | None) -> ReplayedBucket:
        name = BucketName(client.cluster, client.broker_id, *bucket)
        found = self._buckets.get(name) or self._buckets.setdefault(name, ReplayedBucket(name))
        found.limit = limit
        return found
