"""A day of traffic on the virtual clock against Kafka's own quota managers: every throttle time is theirs.

Two days: one of a hundred thousand charges in the buckets that the daemon charges its clients to, with limits that
change on every level; one of requests that pass through sessions, whose charges are replayed: with
`fetch_over_quota: kafka`, because a fetch that is delivered late instead is told less than a broker tells.
"""

import math
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote_plus

import pytest
from tests.support.brokers.java_process import java_command
from tests.support.brokers.maven import KAFKA_4, jars
from tests.support.core.reference_limiters import ReferenceRate
from tests.support.daemon.whole_run import forget_idle
from tests.support.frames.enforcement import (
    START_MS,
    Pair,
    fetch,
    fetch_response,
    produce,
    produce_response,
    set_limit,
    throttle_of,
)

from kafka_quotas.core.model.entity import ABSENT, Absent, Entity
from kafka_quotas.core.model.quota_key import LONG_MAX
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.quota_manager import Limiter, QuotaType
from kafka_quotas.enforcement.config.client_policy import FetchOverQuota
from kafka_quotas.enforcement.config.rules import EnforcementRules
from kafka_quotas.enforcement.event_log.charges import Charge, OnCharge
from kafka_quotas.enforcement.quotas.quota_registry import QuotaRegistry
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
        broker = QuotaRegistry(WINDOW, policies=rules.policies).broker(None)
        for client_id in set(CLIENTS):
            for quota_type, limit in LIMITS.items():
                set_limit(broker, quota_type, Entity.of(client_id=client_id), limit)
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


TIMEOUT_S = 300
SWEEP_MS = 60_000
EVENTS = 100_000
TYPES = (QuotaType.PRODUCE, QuotaType.FETCH, QuotaType.REQUEST, QuotaType.CONTROLLER_MUTATION)
USERS = ("ANONYMOUS", "alice", "bob", "CN=carol,O=x & y", "\u00fcser")
CLIENT_IDS = ("app", "batch", "reports 7", "")
BOUNDS = {
    QuotaType.PRODUCE: (0.5, 1_000.0, 50_000.0, 2e6),
    QuotaType.FETCH: (900.0, 40_000.0, 3e6),
    QuotaType.REQUEST: (0.01, 5.0, 150.0),
    QuotaType.CONTROLLER_MUTATION: (0.1, 5.0, 1000.0),
}
Name = str | Absent | None


class Told:
    """The lines for Kafka's managers, and what ours answered to those that have an answer."""

    def __init__(self) -> None:
        self.lines = [str(START_MS)]
        self.answers: list[str] = []

    def say(self, now_ms: int, *parts: object, answer: object = None) -> None:
        self.lines.append(" ".join(map(str, (now_ms, *parts))))
        if answer is not None:
            self.answers.append(str(answer))

    def limit(self, now_ms: int, quota_type: QuotaType, entity: Entity, bound: float | None) -> None:
        parts = (
            "-" if part is ABSENT else "*" if part is None else word(part) for part in (entity.user, entity.client_id)
        )
        self.say(now_ms, "quota", quota_type.value, *parts, "-" if bound is None else repr(bound))


def word(name: str | Absent) -> str:
    """A name as a word of a line."""
    assert isinstance(name, str)
    return quote_plus(name) or "%"


class LimitedDay:
    """Charges of some clients of one broker, under limits that change meanwhile."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.broker = QuotaRegistry(QuotaWindow()).broker(None)
        self.told = Told()
        self.now_ms = START_MS
        self.charges = 0
        self.throttled = 0
        for quota_type in TYPES:
            self.limit(quota_type, Entity.of(client_id="app"), BOUNDS[quota_type][1])

    def run(self) -> None:
        swept_ms = START_MS
        while self.now_ms < START_MS + DAY_MS:
            self.now_ms += self.pause_ms()
            if self.now_ms - swept_ms >= SWEEP_MS:
                swept_ms = self.now_ms
                forget_idle(self.broker, self.now_ms)
                self.told.say(self.now_ms, "sweep")
            if self.random.random() < 0.002:
                self.change()
            self.charge()

    def pause_ms(self) -> int:
        """Bursts, steady work, rests that forget some samples or all, and now and then an hour without a word."""
        chance = self.random.random()
        if chance < 0.975:
            return self.random.choice((0, 0, 1, 7, 20, 100, 250, 500))
        if chance < 0.99992:
            return self.random.choice((999, 1000, 1001, 5000, 10_999, 11_000, 12_001, 60_000))
        return self.random.randrange(3_600_000, 4_000_000)

    def change(self) -> None:
        quota_type = self.random.choice(TYPES)
        user: Name = self.random.choice((ABSENT, None, *USERS))
        client_id: Name = self.random.choice((ABSENT, None, *filter(None, CLIENT_IDS)))
        if user is ABSENT and client_id is ABSENT:
            client_id = None
        bound = self.random.choice((None, *BOUNDS[quota_type]))
        self.limit(quota_type, Entity.of(user=user, client_id=client_id), bound)

    def limit(self, quota_type: QuotaType, entity: Entity, bound: float | None) -> None:
        set_limit(self.broker, quota_type, entity, bound)
        self.told.limit(self.now_ms, quota_type, entity, bound)

    def charge(self) -> None:
        self.charges += 1
        quota_type = self.random.choices(TYPES, (5, 4, 3, 1))[0]
        user, client_id = self.random.choice(USERS), self.random.choice(CLIENT_IDS)
        limiter = self.broker.manager(quota_type).limiter(user, client_id)
        who = (quota_type.value, word(user), word(client_id))
        if quota_type is QuotaType.CONTROLLER_MUTATION and self.random.random() < 0.7:
            self.mutate(limiter, who)
            return
        amount, kind = self.amount(quota_type), self.random.random()
        if kind < 0.03 and quota_type is not QuotaType.CONTROLLER_MUTATION:
            limiter.unrecord(amount, self.now_ms)
            self.told.say(self.now_ms, "unrecord", *who, repr(amount))
        elif kind < 0.06 and quota_type is not QuotaType.CONTROLLER_MUTATION:
            limiter.record_without_throttle(amount, self.now_ms)
            self.told.say(self.now_ms, "quiet", *who, repr(amount))
        else:
            throttle_ms = limiter.record(amount, self.now_ms)
            if throttle_ms > 0:
                self.throttled += 1
                limiter.throttled(throttle_ms, self.now_ms)
            self.told.say(self.now_ms, "record", *who, repr(amount), answer=throttle_ms)

    def mutate(self, limiter: Limiter, who: tuple[str, str, str]) -> None:
        strict = self.random.random() < 0.5
        amount = float(self.random.choice((1, 3, 50, 800)))
        quota = limiter.mutation_quota(strict=strict)
        refusal = quota.record(amount, self.now_ms)
        answer = quota.throttle_ms(self.now_ms) if refusal is None else refusal.throttle_ms
        self.throttled += answer > 0
        self.told.say(self.now_ms, "strict" if strict else "permissive", *who, repr(amount), answer=answer)

    def amount(self, quota_type: QuotaType) -> float:
        if quota_type is QuotaType.REQUEST:
            return self.random.expovariate(0.5)
        if quota_type is QuotaType.CONTROLLER_MUTATION:
            return float(self.random.randrange(1, 40))
        return float(self.random.randrange(80, 300_000))

    def metrics(self) -> Iterator[tuple[str, float]]:
        """What is told of each bucket at the end, as the program names it."""
        kinds = {
            QuotaType.PRODUCE: ("Produce", "byte-rate"),
            QuotaType.FETCH: ("Fetch", "byte-rate"),
            QuotaType.REQUEST: ("Request", "request-time"),
            QuotaType.CONTROLLER_MUTATION: ("ControllerMutation", "tokens"),
        }
        for quota_type, (kind, attribute) in kinds.items():
            for state in self.broker.manager(quota_type).buckets(self.now_ms):
                place = " ".join((kind, *map(word, state.tags)))
                yield f"{attribute} {place}", state.measured
                yield f"throttle-time {place}", state.throttle_ms
                if state.mutation_rate is not None:
                    yield f"mutation-rate {place}", state.mutation_rate


def kafka_says(told: Told, window: QuotaWindow) -> list[str]:
    """What Kafka's managers answer to the same lines."""
    source = str(Path(__file__).parents[3] / "support" / "java" / "QuotaDay.java")
    options = ["-Xmx512m", "-XX:TieredStopAtLevel=1"]
    command = java_command(jars(KAFKA_4), source, [str(window.samples), str(window.window_s)], options=options)
    done = subprocess.run(
        command, input="\n".join(told.lines) + "\n", capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    if done.returncode:
        assert "jdk.compiler" in done.stderr, done.stderr
        pytest.skip("needs a JDK: this Java can't run a source file")
    return done.stdout.splitlines()


def test_a_hundred_thousand_charges_of_a_day_get_the_throttle_times_that_kafka_gives() -> None:
    day = LimitedDay(7)
    day.run()
    day.told.say(day.now_ms, "tell")
    answers = kafka_says(day.told, QuotaWindow())
    count = len(day.told.answers)
    assert answers[:count] == day.told.answers
    assert answers[-1] == "end"
    theirs = dict(line.rsplit(" ", 1) for line in answers[count:-1])
    assert day.charges >= EVENTS
    assert day.throttled > EVENTS / 20
    assert len(set(day.told.answers)) > 1000
    ours = dict(day.metrics())
    assert len(ours) > 30
    for name, figure in ours.items():
        kafkas = float(theirs.get(name, "NaN"))
        assert figure == pytest.approx(0.0 if math.isnan(kafkas) else kafkas, rel=1e-9), name


def test_what_sessions_charge_in_a_day_is_throttled_as_kafka_throttles_it() -> None:
    told = Told()

    def note(charge: Charge) -> None:
        now_ms, user, client_id, quota_type, _, amount, throttle_ms, _ = charge
        who = (quota_type.value, word(user), word(client_id))
        if amount < 0:
            told.say(now_ms, "unrecord", *who, repr(float(-amount)))
        else:
            told.say(now_ms, "record", *who, repr(float(amount)), answer=throttle_ms)

    day = Day(2, on_charge=note)
    for quota_type, bound, client_id in day.limits():
        told.limit(START_MS, quota_type, Entity.of(client_id=client_id), bound)
    number, now_ms, swept_ms = 0, START_MS, START_MS
    while now_ms < START_MS + DAY_MS:
        number, before = number + 1, len(told.lines)
        now_ms = day.step(number)
        if day.swept_ms != swept_ms:
            swept_ms = day.swept_ms
            told.lines.insert(before, f"{swept_ms} sweep")
    assert len(told.answers) == number > 5000
    throttled = [answer for answer in told.answers if answer != "0"]
    assert len(throttled) > number / 20
    assert len(set(throttled)) > 200
    assert kafka_says(told, WINDOW) == told.answers
