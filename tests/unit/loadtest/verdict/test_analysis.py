"""The judge of load tests on what Kafka's own limiter, healthy or faulty, gives clients of every kind.

The limiter is the core's, which is tested against Kafka's classes. LOAD_VERDICTS=2000 draws more than the suite does.
"""

import heapq
import math
import os
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import cycle

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.load.closed_loop import CLIENT, START_MS, Loop
from tests.support.load.recordings import MS, RecordedClient, recorded, run_of, run_without_clients

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.quota_manager import ClientQuotaManager, QuotaType
from kafka_quotas.loadtest.clients.engine import WireCount
from kafka_quotas.loadtest.judgement import Aspect, State
from kafka_quotas.loadtest.measurement.recorder import Recorder
from kafka_quotas.loadtest.plan.client_verdict import MAX_BLUR
from kafka_quotas.loadtest.plan.plan import MIN_WINDOWS, ClientLoad, ClientName, LaterQuota, LoadPlan
from kafka_quotas.loadtest.plan.workload import ClientKind, MutationFlood, Workload
from kafka_quotas.loadtest.results.result import ClientResult, LoadResult
from kafka_quotas.loadtest.verdict.analysis import load_result
from kafka_quotas.loadtest.verdict.thresholds import METRICS

_TYPES = {
    Workload.PRODUCE: QuotaType.PRODUCE,
    Workload.CONSUME: QuotaType.FETCH,
    Workload.MUTATE: QuotaType.CONTROLLER_MUTATION,
}
_LATENCY_MS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What is wrong with a limiter."""

    factor: float = 1.0
    """By what it multiplies the quota."""
    off: tuple[float, float] = (1.0, 1.0)
    """The shares of the measured time between which it limits nothing."""
    dead_from: float = 1.0
    """The share of the measured time from which on nothing is answered."""


HEALTHY = Fault()


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitedLoad:
    """Clients that share a quota, each on some connections, which offer `times` their quota (None: all they can)."""

    window: QuotaWindow
    windows: float
    """The measured time after the warm-up of one window, in windows."""
    workload: Workload
    quota: int
    clients: int
    connections: int
    request: int
    """The size of the largest request, in the unit of the quota."""
    varies: bool
    """Whether requests have any size from a quarter of that on."""
    times: float | None
    late_ms: int
    """How late a client's library tells of what was acknowledged (librdkafka), 0 for a client that sees each answer."""
    seed: int
    fault: Fault = HEALTHY
    link_share: float = 0.1
    """How much of a second a second's quota takes on the link."""

    @property
    def window_ms(self) -> int:
        """The length of the quota window."""
        return self.window.samples * self.window.window_ms

    @property
    def end_ms(self) -> float:
        """The end of the load."""
        return self.window_ms * (1 + self.windows)

    @property
    def blur(self) -> float:
        """What is under way at once, as a share of what the quota allows in a window."""
        return self.clients * self.connections * self.request / (self.quota * self.window_ms / 1000)

    def result(self) -> LoadResult:
        """Run the load, and return its result with all judgements."""
        recorded = [self._recorded(number) for number in range(self.clients)]
        for number, seen_ms, charged, throttle_ms in self._answers():
            client = recorded[number % self.clients]
            if seen_ms <= self.end_ms:
                self._record(client, int(seen_ms * MS), charged, throttle_ms)
        plan = LoadPlan(
            bootstrap="127.0.0.1:9092",
            entities=tuple(client.entity for client in recorded),
            duration_s=self.windows * self.window_ms / 1000,
            warmup_s=self.window_ms / 1000,
            window=self.window,
        )
        for client in recorded:
            client.recorder.fold()
        clients = [client.measured() for client in recorded]
        return load_result(plan, clients, run_without_clients(plan, self.end_ms / 1000))

    def _recorded(self, number: int) -> RecordedClient:
        is_flood = self.workload is Workload.MUTATE
        cost = self.request if is_flood else 1
        offered = None if self.times is None else Fraction(self.times) * self.quota / self.clients / cost
        entity = ClientLoad(
            name=ClientName(user=None, client_id=f"app-{number}"),
            workload=self.workload,
            topic="t",
            client=ClientKind.LIBRDKAFKA if self.late_ms else ClientKind.RAW,
            quota=self.quota,
            bucket="app" if self.clients > 1 else "",
            connections=self.connections,
            record_size=1,
            batch_bytes=self.request,
            arrivals_per_second=offered,
            flood=MutationFlood(topics_per_request=self.request) if is_flood else None,
        )
        recorder = Recorder(start_ns=0, measure_from_ns=self.window_ms * MS, window_ms=self.window_ms)
        return RecordedClient(entity=entity, recorder=recorder, wire=WireCount(wire_bytes=1, payload_bytes=1))

    def _record(self, client: RecordedClient, at_ns: int, charged: int, throttle_ms: int) -> None:
        recorder = client.recorder
        recorder.sent += charged
        if not charged:
            recorder.response(at_ns, charged=0, throttle_ms=throttle_ms)
        elif not self.late_ms:
            of_warmup = {"intended_ns": 0, "sent_ns": 0}  # whose latencies nobody asks for
            recorder.answered(
                at_ns, throttle_ms=throttle_ms, charged=charged, records=charged, size=charged, **of_warmup
            )
        else:
            recorder.throttled(at_ns, throttle_ms)
            recorder.acknowledged(at_ns, records=charged, size=charged)

    def _answers(self) -> Iterator[tuple[int, float, int, int]]:
        """Yield the connection of each answer, when it is seen, what was charged, and the throttle time."""
        source, limiter = random.Random(self.seed), _Limiter(self)
        ready = [(source.uniform(0, 1), number) for number in range(self.clients * self.connections)]
        refused: dict[int, int] = {}
        heapq.heapify(ready)
        link_ms = arrived = 0.0
        while True:
            now_ms, number = heapq.heappop(ready)
            size = refused.pop(number, 0)
            if not size:
                size = source.randint(max(1, self.request // 4), self.request) if self.varies else self.request
                if self.times is not None:  # a request is sent once its last record has arrived
                    arrived += size
                    now_ms = max(now_ms, arrived / (self.times * self.quota) * 1000)
            link_ms = now_ms = max(now_ms, link_ms) + size / self.quota * 1000 * self.link_share + _LATENCY_MS
            if now_ms > limiter.dead_ms:
                return
            charged, throttle_ms = limiter.answer(size, now_ms)
            if not charged:
                refused[number] = size
            seen_ms = math.ceil(now_ms / self.late_ms) * self.late_ms if self.late_ms else now_ms
            yield number, seen_ms, charged, throttle_ms
            heapq.heappush(ready, (now_ms + throttle_ms, number))


class _Limiter:
    """The quota of a load, as a broker keeps it, with what is wrong with it."""

    def __init__(self, load: LimitedLoad) -> None:
        manager = ClientQuotaManager(_TYPES[load.workload], load.window)
        manager.limits.update(Entity.of(client_id=CLIENT[1]), load.quota * load.fault.factor)
        self._limiter = manager.limiter(*CLIENT)
        self._workload = load.workload
        begin_ms, length_ms = load.window_ms, load.end_ms - load.window_ms
        self._off_ms = [begin_ms + share * length_ms for share in load.fault.off]
        self.dead_ms = begin_ms + load.fault.dead_from * length_ms

    def answer(self, size: int, now_ms: float) -> tuple[int, int]:
        """Return what a request is charged, 0 where it has to be sent again, and its throttle time."""
        if self._off_ms[0] <= now_ms < self._off_ms[1]:
            return size, 0
        at_ms = START_MS + int(now_ms)
        if self._workload is Workload.MUTATE:
            refusal = self._limiter.mutation_quota(strict=True).record(size, at_ms)
            return (size, 0) if refusal is None else (0, refusal.throttle_ms)
        throttle_ms = self._limiter.record(size, at_ms)
        if throttle_ms and self._workload is Workload.CONSUME:
            self._limiter.unrecord(size, at_ms)
            return 0, throttle_ms
        return size, throttle_ms


EXAMPLES = int(os.environ.get("LOAD_VERDICTS", "12"))
IS_SAMPLE = "LOAD_VERDICTS" not in os.environ
WRONG = (1.1, 0.9, 1.3, 0.7)
MOST_VOID = 0.02


def drawn(seed: int, *, windows: tuple[float, float] = (MIN_WINDOWS, MIN_WINDOWS + 3.0)) -> LimitedLoad:
    """A load of any window, workload, quota, request size and number of clients and connections, greedy by itself."""
    source = random.Random(seed)
    workload = source.choice([Workload.PRODUCE, Workload.PRODUCE, Workload.CONSUME, Workload.CONSUME, Workload.MUTATE])
    window = QuotaWindow(samples=source.choice([1, 2, 3, 6, 11, 20]), window_s=source.choice([1, 1, 2, 5]))
    clients, connections = source.choice([1, 1, 1, 2, 5]), source.choice([1, 1, 2, 5])
    late_ms = 0 if workload is Workload.MUTATE else source.choice([0, 0, 10, 50])
    if workload is Workload.MUTATE or late_ms:  # librdkafka has one connection to a broker
        connections = 1
    quota = int(10 ** source.uniform(5, 8))
    share = 10 ** source.uniform(-2.4, -1.4)
    return LimitedLoad(
        window=window,
        windows=source.uniform(*windows),
        workload=workload,
        quota=quota,
        clients=clients,
        connections=connections,
        request=int(share * quota * window.samples * window.window_s / clients / connections),
        varies=source.random() < 0.5,
        times=source.choice([None, 1.5, 2.0, 4.0] if workload is Workload.MUTATE else [None, None, 1.1, 1.5, 2.0, 4.0]),
        late_ms=late_ms,
        seed=seed,
    )


def rate_state(load: LimitedLoad) -> State:
    """The judgement on the rate of the load's clients, of which all have the same."""
    (state,) = {each.state for each in load.result().judgements if each.aspect is Aspect.RATE}
    return state


@settings(max_examples=EXAMPLES, deadline=None, derandomize=IS_SAMPLE)
@given(seed=st.integers(0, 2**40))
@example(seed=6862)
def test_a_limiter_that_keeps_the_quota_is_never_found_not_to(seed: int) -> None:
    load = drawn(seed, windows=(0.5, MIN_WINDOWS + 3.0))

    result = load.result()

    assert result.state is not State.NOT_MET, [each for each in result.judgements if not each.ok]


@settings(max_examples=EXAMPLES, deadline=None, derandomize=IS_SAMPLE)
@given(seed=st.integers(0, 2**40), share=st.floats(0.05, 0.95))
def test_a_client_that_offers_less_gets_it(seed: int, share: float) -> None:
    """Its library sends what has arrived within a moment, which is no large request."""
    load = drawn(seed)
    load = replace(load, times=share, varies=False, request=max(1, int(load.request * share / 5)))

    assert load.result().state is not State.NOT_MET


@settings(max_examples=EXAMPLES, deadline=None, derandomize=IS_SAMPLE)
@given(seed=st.integers(0, 2**40), begin=st.floats(0.1, 0.7), length=st.floats(0.1, 0.3))
def test_a_limiter_that_is_off_for_a_while_never_holds(seed: int, begin: float, length: float) -> None:
    """At four times its quota for a tenth of the time a client gets more than a tenth too much."""
    load = replace(drawn(seed), times=None, fault=Fault(off=(begin, begin + length)), link_share=0.25)

    assert rate_state(load) is not State.MET


@settings(max_examples=EXAMPLES, deadline=None, derandomize=IS_SAMPLE)
@given(seed=st.integers(0, 2**40), dead_from=st.floats(0.0, 0.4))
@example(seed=1515864, dead_from=0.375)
def test_a_limiter_that_dies_never_holds(seed: int, dead_from: float) -> None:
    load = replace(drawn(seed), fault=Fault(dead_from=dead_from))

    assert rate_state(load) is not State.MET


@settings(max_examples=EXAMPLES, deadline=None, derandomize=IS_SAMPLE)
@given(seed=st.integers(0, 2**40), factor=st.sampled_from((1.0, *WRONG)))
def test_fewer_than_five_windows_are_void_whoever_keeps_the_quota(seed: int, factor: float) -> None:
    load = replace(drawn(seed, windows=(0.1, MIN_WINDOWS - 0.1)), fault=Fault(factor=factor))
    if load.workload is Workload.MUTATE:
        load = replace(load, workload=Workload.PRODUCE)

    assert rate_state(load) is State.VOID


@pytest.mark.parametrize(
    ("factors", "never"), [((1.0,), State.NOT_MET), (WRONG, State.MET)], ids=["kept", "a tenth off"]
)
def test_five_windows_are_enough_for_a_verdict_and_it_is_right(factors: tuple[float, ...], never: State) -> None:
    loads = []
    for seed, factor in zip(range(EXAMPLES), cycle(factors), strict=False):
        load = replace(drawn(seed), fault=Fault(factor=factor))
        loads.append(replace(load, times=None) if load.times is not None and load.times < factor else load)
    assert max(load.blur for load in loads) <= MAX_BLUR

    states = Counter(map(rate_state, loads))

    assert states[never] == 0, states
    assert states[State.VOID] <= max(1, MOST_VOID * len(loads)), states


def test_most_limiters_that_are_a_twentieth_off_are_found() -> None:
    states = Counter(rate_state(replace(drawn(seed), fault=Fault(factor=0.95))) for seed in range(EXAMPLES))

    assert states[State.NOT_MET] >= len(range(EXAMPLES)) / 2, states


OLD, NEW = 2e6, 1e6
CHANGED_MS, RUN_MS = 20_000, 80_000
REQUEST = 20_000


def lowered(*, in_force_ms: float) -> ClientResult:
    """The result of a greedy client under Kafka's algorithm, whose quota falls at `in_force_ms` at the enforcer."""
    client: RecordedClient = recorded(quota=OLD)
    client = replace(client, entity=replace(client.entity, later=LaterQuota(at_s=CHANGED_MS / 1000, quota=NEW)))
    loop = Loop(quota=OLD, request=REQUEST, link=REQUEST * 1000)
    for now_ms, throttle_ms in loop.throttled(RUN_MS, change=(in_force_ms, NEW)):
        client.recorder.response(int(now_ms * 1e6), charged=REQUEST, throttle_ms=throttle_ms)
    return run_of(client, elapsed_s=RUN_MS / 1000).entities[0]


def test_it_is_judged_by_the_new_quota() -> None:
    client = lowered(in_force_ms=CHANGED_MS)

    assert client.verdict.ok, client.verdict.evidence
    assert client.verdict.quota == NEW
    assert client.verdict.ratio == pytest.approx(1.0, abs=0.02)
    settled_ms = METRICS["settled"].of(client)
    assert settled_ms is not None
    assert 0 <= settled_ms < 6_000
    assert "1 MB/s was set after 20 s and held" in client.verdict.evidence


def test_a_quota_that_holds_late_takes_longer() -> None:
    soon, late = (METRICS["settled"].of(lowered(in_force_ms=CHANGED_MS + delay_ms)) for delay_ms in (0, 10_000))

    assert soon is not None
    assert late is not None
    assert late > soon + 8_000


def test_a_quota_that_is_never_lowered_is_not_held() -> None:
    client = lowered(in_force_ms=RUN_MS)

    assert not client.verdict.ok
    assert METRICS["settled"].of(client) is None
    assert "it never came down to 1 MB/s" in client.verdict.evidence
