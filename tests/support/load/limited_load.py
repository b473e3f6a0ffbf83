"""Loads behind Kafka's own limiter on a virtual clock, healthy or faulty, recorded and judged as a real run is."""

import heapq
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from tests.support.load.closed_loop import CLIENT, START_MS
from tests.support.load.recordings import MS, RecordedClient

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.quota_manager import ClientQuotaManager, QuotaType
from kafka_quotas.loadtest.clients.engine import WireCount
from kafka_quotas.loadtest.measurement.recorder import Recorder
from kafka_quotas.loadtest.plan.plan import ClientLoad, ClientName, LoadPlan
from kafka_quotas.loadtest.plan.workload import ClientKind, MutationFlood, Workload
from kafka_quotas.loadtest.results.result import CpuUse, LoadResult
from kafka_quotas.loadtest.verdict.analysis import RunFacts, load_result

_TYPES = {
    Workload.PRODUCE: QuotaType.PRODUCE,
    Workload.CONSUME: QuotaType.FETCH,
    Workload.MUTATE: QuotaType.CONTROLLER_MUTATION,
}
_LINK_SHARE = 0.1  # of a second is what a second's quota takes on the link
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
        facts = RunFacts(
            started_ms=START_MS,
            elapsed_s=self.end_ms / 1000,
            enforcers={"t": 1},
            cpu=CpuUse(process=0.1, python=0.1, cores=2),
            interrupted=False,
        )
        return load_result(plan, recorded, facts)

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
        if not self.late_ms:
            recorder.response(at_ns, charged=charged, throttle_ms=throttle_ms)
        elif throttle_ms:
            recorder.throttled(at_ns, throttle_ms)
        if charged:
            recorder.sent += charged
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
            link_ms = now_ms = max(now_ms, link_ms) + size / self.quota * 1000 * _LINK_SHARE + _LATENCY_MS
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
        manager.update_quota(Entity.of(client_id=CLIENT[1]), load.quota * load.fault.factor)
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
