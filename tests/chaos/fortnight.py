"""Two weeks of traffic through sessions on the virtual clock: what they keep is what a day of it needs.

Regular clients and strangers who are seen once connect, ask, wait their throttle times out and leave, while limits
change and idle buckets are swept as the daemon does it.
"""

import gc
import heapq
import itertools
import random
import sys
from dataclasses import dataclass, field

from tests.support.daemon.whole_run import forget_idle
from tests.support.frames.enforcement import (
    START_MS,
    Pair,
    fetch,
    fetch_response,
    framed,
    produce,
    produce_response,
    request,
    set_limit,
    throttle_of,
)

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.quota_manager import IDLE_MS, QuotaType
from kafka_quotas.enforcement.config.rules import EnforcementRules
from kafka_quotas.enforcement.quotas.broker_quotas import ENFORCED, BrokerQuotas
from kafka_quotas.enforcement.quotas.quota_registry import QuotaRegistry
from kafka_quotas.enforcement.session.state import ConnectionState

DAY_MS = 24 * 3_600_000
DAYS = 14
WINDOW = QuotaWindow()
SWEEP_MS = 60_000
CONNECTIONS = 6
REGULARS = 20
LIMITS = (None, 300.0, 5_000.0, 1e6)
REFUSED_AFTER_MS = 24 * 3_600_000
"""A throttle time that would be nonsense in this traffic."""
_KINDS = (QuotaType.PRODUCE, QuotaType.FETCH)


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What was kept at the end of a day."""

    buckets: int
    objects: int
    blocks: int
    """Blocks of memory that the interpreter has handed out."""
    timers: int
    """Sessions that want to be woken."""


@dataclass(slots=True)
class _Connection:
    """A session, whose it is, and for how many requests more it stays."""

    pair: Pair
    client_id: str
    left: int


@dataclass(slots=True)
class Fortnight:
    """The traffic.

    `requests`, `throttled`, `held` and `emptied` say how much of it there was by now.
    """

    seed: int
    requests: int = 0
    throttled: int = 0
    held: int = 0
    emptied: int = 0
    strangers: int = 0
    _chance: random.Random = field(init=False)
    _broker: BrokerQuotas = field(init=False)
    _due: list[tuple[int, int, _Connection]] = field(init=False)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self._broker = QuotaRegistry(WINDOW).broker(None)
        for kind in _KINDS:
            set_limit(self._broker, kind, Entity.of(client_id=None), 2_000.0)
        order = itertools.count()
        self._due = [(START_MS + next(order), number, self._connected(START_MS)) for number in range(CONNECTIONS)]

    def days(self, count: int = DAYS) -> list[Held]:
        """Let two weeks pass and return what was kept at the end of each day."""
        held = []
        end_ms, swept_ms = START_MS + DAY_MS, START_MS
        while len(held) < count:
            now_ms, number, connection = heapq.heappop(self._due)
            while now_ms - swept_ms >= SWEEP_MS:
                swept_ms += SWEEP_MS
                forget_idle(self._broker, swept_ms)
            while now_ms >= end_ms and len(held) < count:
                held.append(self._held())
                end_ms += DAY_MS
            heapq.heappush(self._due, (now_ms + self._step(connection, now_ms), number, connection))
        return held

    def _step(self, connection: _Connection, now_ms: int) -> int:
        """Send one request and return how long the client waits until its next one, or its fetch is held."""
        pair = connection.pair
        was_held = pair.session.state.held is not None
        pair.advance(now_ms - pair.now_ms)
        if was_held:
            return self._ended(pair, self._fetched(pair))
        assert pair.session.state.phase is ConnectionState.READING, "a client that waited its time out is still held"
        assert len(pair.session.state.in_flight) == 0
        if connection.left == 0:
            fresh = self._connected(now_ms)
            connection.pair, connection.client_id, connection.left = fresh.pair, fresh.client_id, fresh.left
            pair = connection.pair
        if self._chance.random() < 0.001:
            self._change()
        connection.left -= 1
        self.requests += 1
        return self._ended(pair, self._asked(pair, connection.client_id))

    def _ended(self, pair: Pair, throttle_ms: int | None) -> int:
        """Take note of a response, and return how long the client waits from now on."""
        if throttle_ms is None:
            held = pair.session.state.held
            assert held is not None, "a request neither reached the broker nor waits"
            return held.until_ms - pair.now_ms
        assert 0 <= throttle_ms < REFUSED_AFTER_MS
        self.throttled += throttle_ms > 0
        pair.upstream = pair.client = b""
        pair.notices.clear()
        return throttle_ms + self._pause_ms()

    def _asked(self, pair: Pair, client_id: str) -> int | None:
        """Send a request, and return the throttle time that the client was given, None if it is held."""
        number, kind = self.requests % 2**31, self._chance.random()
        if kind < 0.45:
            pair.send(produce(number, size=self._chance.randrange(200, 20_000), client_id=client_id))
            return throttle_of(pair.answer(produce_response(number)), -4)
        if kind < 0.9:
            pair.send(fetch(number, client_id=client_id))
            return self._fetched(pair)
        pair.send(request(12, 1, number, b"heartbeat", client_id=client_id))
        pair.answer(framed(number.to_bytes(4, "big")))
        return 0

    def _fetched(self, pair: Pair) -> int | None:
        """Have a fetch answered, unless the daemon did so, and return its throttle time, None if it is held."""
        if pair.client:
            self.emptied += 1
            return throttle_of(pair.client)
        if not pair.upstream:
            self.held += 1
            return None
        number = int.from_bytes(pair.upstream[8:12], "big")
        return throttle_of(pair.answer(fetch_response(number, size=self._chance.randrange(200, 20_000))))

    def _connected(self, now_ms: int) -> _Connection:
        """A new connection, of a regular client or of somebody who is never seen again."""
        name = f"regular-{self._chance.randrange(REGULARS)}"
        if self._chance.random() < 0.3:
            self.strangers += 1
            name = f"stranger-{self.strangers}"
        pair = Pair(broker=self._broker, rules=EnforcementRules(window=WINDOW))
        pair.now_ms = now_ms
        return _Connection(pair, name, self._chance.randrange(1, 60))

    def _change(self) -> None:
        entity = Entity.of(client_id=f"regular-{self._chance.randrange(REGULARS)}")
        set_limit(self._broker, self._chance.choice(_KINDS), entity, self._chance.choice(LIMITS))

    def _pause_ms(self) -> int:
        return self._chance.choice((0, 5, 1000, 1001, 11_000, 60_000, 120_000, 240_000))

    def _held(self) -> Held:
        gc.collect()
        return Held(
            buckets=sum(len(self._broker.manager(kind).snapshots()) for kind in ENFORCED),
            objects=len(gc.get_objects()),
            blocks=sys.getallocatedblocks(),
            timers=sum(1 for _, _, each in self._due if each.pair.session.state.wake_at_ms is not None),
        )


assert IDLE_MS < DAY_MS, "a bucket of yesterday is idle"
