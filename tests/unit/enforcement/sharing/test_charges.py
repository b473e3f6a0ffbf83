"""Processes that tell each other what they charge have the same buckets, and nothing is counted twice."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.core.virtual_clock import VirtualClock
from tests.support.daemon.proxy_quotas import proxy_quotas

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_key import ThresholdSettings
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.quota_manager import ClientQuotaManager, QuotaType
from kafka_quotas.enforcement.config.client_policy import Mode, Scope
from kafka_quotas.enforcement.quotas.quota_registry import BucketId
from kafka_quotas.enforcement.session.state import ThrottledChannel
from kafka_quotas.enforcement.sharing.buckets import waiting_clients
from kafka_quotas.enforcement.sharing.charges import ProcessCharge, SharedCharges

START_MS = 1_700_000_000_000
WINDOW = QuotaWindow(samples=11, window_s=1)
LIMIT = 100_000.0


class Fleet:
    """What a fleet does to one bucket in the parent."""

    def __init__(self, shared: SharedCharges, manager: ClientQuotaManager) -> None:
        self.shared, self.bucket = shared, manager.bucket_of(("", "app"))
        shared.offered(self.bucket)

    def record(self, amount: float, now_ms: int, past: tuple[int, int] | None = None) -> None:
        self.shared.record_for_others(self.bucket, amount, now_ms, past)

    def reserve(self, amount: float, factor: float = 0.0, *, is_shared: bool = True) -> None:
        self.shared.reserve_for_others(self.bucket, amount, factor, is_shared=is_shared)


class Process:
    """One process's quotas and what it shares of them."""

    def __init__(self, clock: VirtualClock, *, is_worker: bool = False) -> None:
        self.clock = clock
        self.is_worker = is_worker
        entities = {
            Entity.of(client_id="wide"): {"scope": Scope.CLUSTER},
            Entity.of(client_id="smooth"): {"mode": Mode.SMOOTH},
        }
        limits = {Entity.of(client_id=None): {"producer_byte_rate": LIMIT, "request_percentage": 10.0}}
        self.quotas = quotas = proxy_quotas(limits, clock=clock, window=WINDOW, entities=entities)
        self.policy, self.thresholds = quotas.registry, quotas.topics.thresholds
        self.thresholds.apply_file(ThresholdSettings(topics={"busy": 600.0}, totals={None: 1000.0}))
        self.shared = SharedCharges(quotas)

    def charge(self, client_id: str, amount: float, node_id: int = 1) -> int:
        return self.policy.broker(node_id).client("u", client_id).produce.record(amount, self.clock.now_ms())

    def used(self) -> dict[tuple[str, str], float]:
        now_ms = self.clock.now_ms()
        return {
            bucket.name: round(bucket.used(now_ms), 3)
            for buckets in self.policy.pool.walk()
            for bucket in buckets
            if bucket.used(now_ms)
        }


def exchange(processes: list[Process], now_ms: int) -> int:
    """Bring to each process what the others charged, and return the number of charges."""
    taken = [each.shared.take(now_ms) for each in processes]
    for at, process in enumerate(processes):
        for other, charges in enumerate(taken):
            if other != at:
                process.shared.record(charges, now_ms)
        if process.is_worker:
            process.shared.echoed(taken[at])
    return sum(map(len, taken))


def test_the_whole_is_taken_before_another_process_begins_with_what_is_measured() -> None:
    """What a look at a part leaves over would reach the new process twice: with the state, and as a charge."""
    process = Process(VirtualClock(START_MS))
    for number in range(2_000):
        process.charge(f"client-{number}", 1.0)
    part = process.shared.take(START_MS)
    rest = process.shared.take(START_MS, whole=True)
    assert 0 < len(part) < 2_000
    assert len(part) + len(rest) == 2_000
    assert not process.shared.take(START_MS, whole=True)


steps = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(("app", "wide", "smooth")), st.integers(1, 5000), st.integers(0, 900)),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(steps=steps)
def test_after_each_exchange_all_processes_have_the_buckets_of_one(steps: list[tuple[int, str, int, int]]) -> None:
    clock = VirtualClock(START_MS)
    processes, one = [Process(clock) for _ in range(3)], Process(clock)
    for who, client_id, amount, pause_ms in steps:
        processes[who].charge(client_id, amount)
        one.charge(client_id, amount)
        exchange(processes, clock.now_ms())
        assert [each.used() for each in processes] == [one.used()] * 3
        clock.advance(pause_ms)


def test_fractions_are_not_sent_to_and_fro() -> None:
    clock = VirtualClock(START_MS)
    processes = [Process(clock) for _ in range(2)]
    generator = random.Random(7)
    for _ in range(200):
        for each in processes:
            each.charge("app", generator.random() * 1000)
        clock.advance(37)
        exchange(processes, clock.now_ms())
    assert [exchange(processes, clock.now_ms()) for _ in range(3)] == [0, 0, 0]


def test_what_a_fleet_does_in_the_parent_is_done_in_every_process_and_comes_back_from_none() -> None:
    clock = VirtualClock(START_MS)
    parent, worker = Process(clock), Process(clock, is_worker=True)
    manager = parent.policy.broker(1).manager(QuotaType.PRODUCE)
    worker.charge("app", 50_000)
    exchange([parent, worker], clock.now_ms())
    parent.charge("app", 20_000)
    fleet = Fleet(parent.shared, manager)
    now_ms = clock.now_ms()
    fleet.record(100_000.0, now_ms)
    fleet.record(400_000.0, now_ms, (now_ms - 4000, now_ms))
    fleet.reserve(200_000.0)
    worker.charge("app", 10_000)
    # The parent's charge, the fleet's two with what is reserved; the worker's charge.
    assert exchange([parent, worker], now_ms) == 5
    waits_ms = []
    for _ in range(14):
        assert worker.used() == parent.used()
        managers = [each.policy.broker(1).manager(QuotaType.PRODUCE) for each in (parent, worker)]
        now_ms = clock.now_ms()
        waits_ms.append([each.bucket_of(("", "app")).would_throttle_ms(300_000, now_ms) for each in managers])
        assert exchange([parent, worker], now_ms) == 0
        clock.advance(1000)
    assert all(one == other for one, other in waits_ms)
    assert waits_ms[0][0] > waits_ms[-1][0] == 0


@pytest.mark.parametrize("late_ms", range(0, 1000, 90))
def test_a_worker_whose_samples_begin_later_has_no_more_room_than_its_parent(late_ms: int) -> None:
    """A reservation may be less than nothing by a window: applied to another window it lets one more through."""
    clock = VirtualClock(START_MS)
    parent, worker = Process(clock), Process(clock, is_worker=True)
    managers = [each.policy.broker(1).manager(QuotaType.PRODUCE) for each in (parent, worker)]
    fleet = Fleet(parent.shared, managers[0])
    most = 0.0
    for second in range(40):
        worker.charge("app", LIMIT)
        clock.advance(late_ms)  # the parent's sample begins with what the worker's ends with
        exchange([parent, worker], clock.now_ms())
        now_ms = clock.now_ms()
        fleet.reserve(0.9 * fleet.bucket.capacity - fleet.bucket.used(now_ms), 0.5)
        exchange([parent, worker], now_ms)
        if second > 15:
            rooms = [
                bucket.capacity * bucket.window_ms(now_ms) / 10_000 - bucket.used(now_ms) - bucket.reserved
                for bucket in (each.bucket_of(("", "app")) for each in managers)
            ]
            most = max(most, abs(rooms[0] - rooms[1]))
        clock.advance(1000 - late_ms)
    assert most == pytest.approx(0, abs=1)


def test_a_process_that_starts_later_gets_what_is_reserved() -> None:
    clock = VirtualClock(START_MS)
    parent, worker = (Process(clock) for _ in range(2))
    manager = parent.policy.broker(1).manager(QuotaType.PRODUCE)
    fleet = Fleet(parent.shared, manager)
    for _ in range(2):
        parent.policy.pool.idle_share = 0.5
        fleet.reserve(fleet.bucket.capacity / 2, is_shared=False)
    assert len(parent.shared.take(START_MS)) == 2
    parent.shared.repeat_reservations()
    fleet.reserve(fleet.bucket.capacity / 2, is_shared=False)
    worker.shared.record(parent.shared.take(START_MS), START_MS)
    assert worker.policy.pool.idle_share == 0.5
    assert worker.shared.take(START_MS) == parent.shared.take(START_MS) == []
    assert worker.charge("app", 300_000) == 0
    assert worker.charge("app", 300_000) > 0


@pytest.mark.parametrize("late_ms", range(0, 1000, 90))
def test_a_bucket_that_is_not_shared_yet_reserves_the_same_in_every_process(late_ms: int) -> None:
    """What the parent has left at one moment says nothing of the next one to a worker whose samples end elsewhere."""
    clock = VirtualClock(START_MS)
    parent, worker = Process(clock), Process(clock, is_worker=True)
    managers = [each.policy.broker(1).manager(QuotaType.PRODUCE) for each in (parent, worker)]
    fleet = Fleet(parent.shared, managers[0])
    parent.policy.pool.idle_share = 0.25
    for _ in range(15):
        worker.charge("app", LIMIT // 8)
        clock.advance(late_ms)
        exchange([parent, worker], clock.now_ms())
        fleet.reserve(fleet.bucket.capacity * 0.75, is_shared=False)
        exchange([parent, worker], clock.now_ms())
        assert managers[1].bucket_of(("", "app")).reserved == fleet.bucket.capacity * 0.75
        clock.advance(1000 - late_ms)


def test_clients_that_wait_are_counted_for_the_parents_bucket() -> None:
    worker = Process(VirtualClock(START_MS))
    limits = worker.policy.broker(1).client("u", "app")
    limits.produce.record(1, START_MS)
    channels = [
        ThrottledChannel(limiter=limits.produce, since_ms=START_MS, until_ms=START_MS + wait_ms)
        for wait_ms in (500, 700, 0)
    ]
    counts = waiting_clients(worker.policy, channels, START_MS + 100)
    assert counts == {BucketId(1, Mode.KAFKA, QuotaType.PRODUCE, ("", "app")): 2}


def test_what_was_measured_before_is_nobody_elses() -> None:
    clock = VirtualClock(START_MS)
    process = Process(clock)
    process.charge("app", 1000)
    assert SharedCharges(process.quotas).take(clock.now_ms()) == []


def test_a_bootstrap_server_that_gets_its_node_id_keeps_its_buckets() -> None:
    clock = VirtualClock(START_MS)
    processes = [Process(clock) for _ in range(2)]
    for node_id in (None, 1):
        for each in processes:
            if node_id is not None:
                each.policy.name_bootstrap(1, None)
            quotas = each.policy.broker(node_id)
            quotas.client("u", "app").produce.record(1000, clock.now_ms())
        exchange(processes, clock.now_ms())
    assert [set(each.policy.brokers) for each in processes] == [{1}, {1}]
    assert [list(each.used().values()) for each in processes] == [[4000.0], [4000.0]]


@pytest.mark.parametrize("clients", [1, 5, 3000])
def test_every_bucket_passes_however_many_there_are(clients: int) -> None:
    clock = VirtualClock(START_MS)
    process = Process(clock)
    for number in range(clients):
        process.charge(f"app-{number}", 10)
    found = [charge for _ in range(2 * clients // 1000 + 2) for charge in process.shared.take(clock.now_ms())]
    assert sum(charge.amount for charge in found if isinstance(charge, ProcessCharge)) == 10 * clients
    assert process.shared.take(clock.now_ms()) == []


def test_a_quota_that_two_processes_hold_is_that_of_one_within_a_hundredth() -> None:
    clock = VirtualClock(START_MS)
    processes = [Process(clock) for _ in range(2)]
    free_ms = [START_MS] * 8
    sent = 0.0
    for _ in range(60 * 100):
        clock.advance(10)
        now_ms = clock.now_ms()
        for client, at_ms in enumerate(free_ms):
            if at_ms <= now_ms:
                throttle_ms = processes[client % 2].charge("app", 2000)
                sent += 2000
                free_ms[client] = now_ms + max(50, throttle_ms)
        exchange(processes, now_ms)
    burst = LIMIT * 10
    assert sent == pytest.approx(60 * LIMIT + burst, rel=0.02, abs=burst)
    assert sent <= 60 * LIMIT * 1.03 + burst


def test_topics_count_for_their_thresholds_in_every_process() -> None:
    clock = VirtualClock(START_MS)
    processes = [Process(clock) for _ in range(2)]
    first, second = (each.thresholds.broker(1).topics for each in processes)
    first.record("busy", 30_000, clock.now_ms())
    exchange(processes, clock.now_ms())
    clock.advance(5000)
    assert second.rates(clock.now_ms()) == first.rates(clock.now_ms())
