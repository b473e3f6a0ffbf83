"""A day of traffic through sessions on the virtual clock, each throttle time held against Kafka's rules put plainly."""

import random
from collections.abc import Iterator

from tests.support.core.reference_limiters import ReferenceRate
from tests.support.daemon.whole_run import forget_idle
from tests.support.frames.enforcement import (
    START_MS,
    Pair,
    fetch,
    fetch_response,
    produce,
    produce_response,
    throttle_of,
)

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_key import LONG_MAX
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.enforcement.config.client_policy import FetchOverQuota
from kafka_quotas.enforcement.config.rules import EnforcementRules
from kafka_quotas.enforcement.event_log.charges import OnCharge
from kafka_quotas.enforcement.quotas.broker_quotas import BrokerQuotas
from kafka_quotas.enforcement.session.state import READING

DAY_MS = 24 * 3_600_000
WINDOW = QuotaWindow()
LIMITS = {QuotaType.PRODUCE: 10_000.0, QuotaType.FETCH: 20_000.0}
FETCH_VERSION = 6
"""The last one without an error code before the records, which are filler here."""
CLIENTS = ("app", "app", "batch")
"""Two connections of one client-id, which share its buckets, and one of another."""


class Day:
    """Connections to one broker, what they are due, and Kafka's rules beside each of their buckets."""

    def __init__(self, seed: int, *, on_charge: OnCharge | None = None) -> None:
        self.random = random.Random(seed)
        rules = EnforcementRules(window=WINDOW, fetch_over_quota=FetchOverQuota.KAFKA)
        broker = BrokerQuotas(WINDOW, policies=rules.policies)
        for client_id in set(CLIENTS):
            for quota_type, limit in LIMITS.items():
                broker.update(quota_type, Entity.of(client_id=client_id), limit, static=False)
        self.broker = broker
        self.pairs = [Pair(broker=broker, rules=rules, on_charge=on_charge) for _ in CLIENTS]
        self.due_ms = [START_MS + self.random.randrange(5000) for _ in CLIENTS]
        self.rates = {(client_id, kind): ReferenceRate(11, 1000) for client_id in CLIENTS for kind in LIMITS}
        self.throttles: list[int] = []
        self.swept_ms = START_MS

    def limits(self) -> Iterator[tuple[QuotaType, float, str]]:
        """Each limit and the client-id that has it."""
        for quota_type, limit in LIMITS.items():
            for client_id in sorted(set(CLIENTS)):
                yield quota_type, limit, client_id

    def step(self, number: int) -> int:
        """The time after one request of the connection that is due first, checked against Kafka's rules."""
        which = min(range(len(CLIENTS)), key=self.due_ms.__getitem__)
        pair, now_ms = self.pairs[which], self.due_ms[which]
        pair.advance(now_ms - pair.now_ms)
        assert pair.session.state.phase is READING, "a client that waited its time out is still held"
        if now_ms - self.swept_ms >= 60_000:
            self.swept_ms = now_ms
            forget_idle(self.broker, now_ms)
        is_fetch = self.random.random() < 0.4
        told_ms = (
            self.fetched(pair, CLIENTS[which], number) if is_fetch else self.produced(pair, CLIENTS[which], number)
        )
        self.throttles.append(told_ms)
        pair.upstream = pair.client = b""
        self.due_ms[which] = now_ms + told_ms + self.pause_ms(now_ms)
        return now_ms

    def produced(self, pair: Pair, client_id: str, number: int) -> int:
        size = self.random.randrange(200, 60_000)
        frame = produce(number, size=size, client_id=client_id)
        assert pair.send(frame) == frame
        told_ms = throttle_of(pair.answer(produce_response(number)), -4)
        assert told_ms == self.expected(client_id, QuotaType.PRODUCE, size - 4, pair.now_ms)
        return told_ms

    def fetched(self, pair: Pair, client_id: str, number: int) -> int:
        size = self.random.randrange(200, 120_000)
        pair.send(fetch(number, client_id=client_id, version=FETCH_VERSION))
        response = pair.answer(fetch_response(number, size=size, version=FETCH_VERSION))
        told_ms = throttle_of(response)
        assert told_ms == self.expected(client_id, QuotaType.FETCH, size - 4, pair.now_ms)
        assert (len(response) < size) == (told_ms > 0), "a broker keeps the records of a fetch that it throttles"
        if told_ms:
            self.rates[client_id, QuotaType.FETCH].record(4 - size, pair.now_ms)
        return told_ms

    def expected(self, client_id: str, kind: QuotaType, amount: int, now_ms: int) -> int:
        return self.rates[client_id, kind].record_and_throttle_ms(amount, now_ms, LIMITS[kind], LONG_MAX)

    def pause_ms(self, now_ms: int) -> int:
        """Until the next request: bursts by day, pauses of minutes at night, now and then hours without a word."""
        hour = (now_ms - START_MS) // 3_600_000
        if self.random.random() < 0.0005:
            return self.random.randrange(3_600_000, 3 * 3_600_000)
        if hour < 6 and self.random.random() < 0.2:
            return self.random.randrange(60_000, 900_000)
        return self.random.choice((0, 1, 20, 999, 1000, 1001, 5000, 11_000, 20_000))
