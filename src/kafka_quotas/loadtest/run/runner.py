"""One run: the engines of a plan in threads, started together, watched, stopped together."""

import gc
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kafka_quotas.core.clock import Clock
from kafka_quotas.core.errors import UsageError
from kafka_quotas.loadtest.clients.cluster_check import (
    ClusterUnreachableError,
    TopicUse,
    TopicView,
    TopicViews,
    look_at_topic,
    reach_cluster,
    translated,
)
from kafka_quotas.loadtest.clients.engine import ClientEngine, LoadClient, RunClock
from kafka_quotas.loadtest.clients.librdkafka import ConsumerLoad, ProducerLoad
from kafka_quotas.loadtest.plan.plan import ClientLoad, LoadPlan
from kafka_quotas.loadtest.plan.workload import ClientKind, Workload
from kafka_quotas.loadtest.results.result import CpuUse, LoadResult
from kafka_quotas.loadtest.run.target_watch import PATIENCE_S, STEP_MS, ClockWatch, TargetWatch
from kafka_quotas.loadtest.verdict.analysis import MeasuredClient, load_result, patience_ms
from kafka_quotas.loadtest.verdict.thresholds import AbortCheck

_LOOK_S = 0.25
_LOOKS_KEPT = 10_000  # of the watching thread's lateness
_HEAD_START_NS = 20_000_000  # all threads wait for the same first instant
_SILENCE_S = 20.0  # a run ends where a client sends for so long, and none has an acknowledgement or a throttle time


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientProgress:
    """One client's load and throttling so far."""

    entity: ClientLoad
    rate: float
    """Charge per second over the last quota window."""
    acked: int
    waiting: int
    """Records or requests without a response."""
    throttle_count: int
    throttle_sum_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """The state of a run at one moment."""

    elapsed_s: float
    total_s: float
    warming_up: bool
    entities: tuple[ClientProgress, ...]
    before_s: float = 0.0
    """The time of the loads before this one, such as those of control clients alone."""
    whole_s: float = 0.0
    """The time of all loads at most, comparison included, 0 where this one is all there is."""

    @property
    def done_s(self) -> float:
        """The time under load until now, of all loads."""
        return self.before_s + self.elapsed_s

    @property
    def most_s(self) -> float:
        """The time of all loads at most."""
        return max(self.whole_s, self.before_s + self.total_s)


Watcher = Callable[[RunProgress], None]
"""Called several times a second, in the thread that started the run."""


def run_load(
    plan: LoadPlan,
    *,
    clock: Clock,
    watcher: Watcher | None = None,
    ready: Callable[[], None] | None = None,
    abort: AbortCheck | None = None,
    start_at_ms: int | None = None,
) -> LoadResult:
    """Run a plan and return its result, which is marked as interrupted after Ctrl-C.

    `ready` is called when the cluster has accepted every client, right before the load. `abort` is asked several times
    a second after the warm-up, and a broken threshold ends the run and makes it void. `start_at_ms` is when the load
    begins (milliseconds since the epoch), None for at once.

    Raises:
        ClusterUnreachableError: If no broker answers, or nothing is acknowledged for a long time.
        LoadRefusedError: If the cluster refuses a client, a topic does not exist, or a topic to consume is empty.
        UsageError: If a client refuses a property, its library can't run the workload, or `start_at_ms` is over.
    """
    views = _look_at_topics(plan)
    if ready is not None:
        ready()
    lasting_s = (0.0, plan.warmup_s, plan.warmup_s + plan.duration_s)
    planned = RunClock(*(int(instant_s * 1e9) for instant_s in lasting_s))
    engines = _engines(plan, planned, views)  # a thousand clients take some seconds to make
    gc.collect()
    now_ms, cpu_s = clock.now_ms(), time.process_time()
    ahead_ns = _HEAD_START_NS + max(engine.head_start_ns for engine in engines)
    if start_at_ms is not None:
        given_ns = (start_at_ms - now_ms) * 1_000_000
        if given_ns < ahead_ns:
            late = f"everything was ready {(ahead_ns - given_ns) / 1e9:.1f} s after --start-at"
            raise UsageError(late, hint="name a later time, in all shards")
        ahead_ns = given_ns
    begins_ns = time.monotonic_ns() + ahead_ns
    instants = RunClock(*(begins_ns + instant_ns for instant_ns in planned))
    run = LoadRun(plan=plan, instants=instants, engines=engines, clock=clock)
    for client in run.clients:
        client.postpone(instants.start_ns)
    gc.freeze()  # looking through all objects of a thousand clients takes some 50 ms, in which no client sends
    try:
        with TargetWatch(plan, start_s=instants.start_ns / 1e9) as target:
            run.drive(watcher, abort)
    finally:
        gc.unfreeze()
    end_ns = min(run.ended_ns, instants.end_ns)
    for client in run.clients:
        client.settle(end_ns)
    elapsed_s = (end_ns - instants.start_ns) / 1e9
    result = LoadResult(
        bootstrap=plan.bootstrap,
        run_id=plan.run_id,
        title="load-test",
        started_ms=now_ms + ahead_ns // 1_000_000,
        elapsed_s=elapsed_s,
        warmup_s=plan.warmup_s,
        window=plan.window,
        cpu=run.cpu_use(time.process_time() - cpu_s, elapsed_s),
        interrupted=run.interrupted,
        entities=(),
        restarts=target.restarts,
        outages=(*target.findings, *run.clocks.findings, *run.standstills, *run.aborted),
    )
    leaders = {topic: view.leaders for (topic, _), view in views.items()}
    return load_result(plan, [_measured(client, leaders) for client in run.clients], result)


def _measured(client: LoadClient, leaders: Mapping[str, int]) -> MeasuredClient:
    entity, recorder = client.entity, client.recorder
    return MeasuredClient(
        entity=entity,
        recorder=recorder,
        wire=client.wire,
        unfinished=client.unfinished,
        books=client.books(answer_ms=patience_ms(entity, recorder)),
        enforcers=client.plan.enforcers or leaders.get(entity.topic, 1),
    )


def _look_at_topics(plan: LoadPlan) -> dict[TopicUse, TopicView]:
    views: dict[TopicUse, TopicView] = {}
    reached: set[tuple[tuple[str, str], ...]] = set()
    for entity in plan.entities:
        use = (entity.topic, entity.workload)
        by_raw = _logs_in_by_kerberos(plan, entity)
        if not entity.workload.moves_records:
            if entity.properties not in reached:
                (_look_as_raw_client if by_raw else reach_cluster)(plan, entity)
                reached.add(entity.properties)
        elif use not in views:
            views[use] = (_look_as_raw_client if by_raw else look_at_topic)(plan, entity)
    return views


def _logs_in_by_kerberos(plan: LoadPlan, entity: ClientLoad) -> bool:
    """Check for a login that librdkafka's wheel has not, by a raw client that asks for no offsets."""
    properties = plan.properties_of(entity)
    mechanism = properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or ""
    is_raw = entity.client is ClientKind.RAW and entity.workload is not Workload.CONSUME
    return is_raw and mechanism.strip().upper() == "GSSAPI"


def _look_as_raw_client(plan: LoadPlan, entity: ClientLoad) -> TopicView:
    from kafka_quotas.loadtest.clients.raw.engine import look_as_raw_client  # noqa: PLC0415 - as in `_engines`

    return look_as_raw_client(plan, entity)


def _engines(plan: LoadPlan, clock: RunClock, views: TopicViews) -> tuple[ClientEngine, ...]:
    engines: list[ClientEngine] = []
    for entity in plan.entities:
        if entity.client is ClientKind.LIBRDKAFKA and entity.workload is Workload.PRODUCE:
            engines.append(ProducerLoad(plan, entity, clock))
        elif entity.client is ClientKind.LIBRDKAFKA and entity.workload is Workload.CONSUME:
            engines.append(ConsumerLoad(plan, entity, clock, views[entity.topic, entity.workload].filled))
        elif entity.client is not ClientKind.RAW:
            raise UsageError(f"{entity.client} can't do what {entity.name.label} is to do: {entity.workload}")
    raw = [entity for entity in plan.entities if entity.client is ClientKind.RAW]
    if raw:
        from kafka_quotas.loadtest.clients.raw.engine import RawEngine  # noqa: PLC0415 - librdkafka's runs need no loop

        engines.append(RawEngine(plan, raw, clock, views))
    return tuple(engines)


@dataclass(slots=True, kw_only=True)
class LoadRun:
    """A run in progress: its clients, their threads, and its measurements."""

    plan: LoadPlan
    instants: RunClock
    engines: tuple[ClientEngine, ...]
    clock: Clock
    interrupted: bool = False
    ended_ns: int = 0
    thread_cpu_s: list[float] = field(default_factory=list)
    lateness_s: deque[float] = field(default_factory=lambda: deque(maxlen=_LOOKS_KEPT))
    stop: threading.Event = field(default_factory=threading.Event)
    clocks: ClockWatch = field(default_factory=ClockWatch)
    aborted: list[str] = field(default_factory=list)
    """Which broken threshold ended the run, one line or none."""
    standstills: list[str] = field(default_factory=list)
    """When this process did not run at all, one line each."""
    clients: Sequence[LoadClient] = field(init=False)

    def __post_init__(self) -> None:
        order = {id(entity): position for position, entity in enumerate(self.plan.entities)}
        clients = [client for engine in self.engines for client in engine.clients]
        self.clients = sorted(clients, key=lambda client: order[id(client.entity)])

    def cpu_use(self, process_s: float, elapsed_s: float) -> CpuUse:
        """Return the use of the CPU in the whole run, given the CPU seconds of the process."""
        return CpuUse(
            process=process_s / max(elapsed_s, 1e-9),
            python=sum(self.thread_cpu_s) / max(elapsed_s, 1e-9),
            cores=os.cpu_count() or 1,
            late_ms=sum(self.lateness_s) / max(len(self.lateness_s), 1) * 1000,
        )

    def drive(self, watcher: Watcher | None, abort: AbortCheck | None = None) -> None:
        """Run all engines in threads until the end of the run, and join the threads."""
        threads = [threading.Thread(target=self._live, args=(engine,), daemon=True) for engine in self.engines]
        failure: Exception | None = None
        try:
            for thread in threads:
                thread.start()
            failure = self._watch(threads, watcher, abort)
        except KeyboardInterrupt:
            self.interrupted = True
        finally:
            self.stop.set()
            self.ended_ns = time.monotonic_ns()
            for thread in threads:
                if thread.is_alive():  # an interrupt may have come before it was started
                    thread.join()
        failure = next((client.error for client in self.clients if client.error), failure)
        if failure is not None:
            raise failure

    def _live(self, engine: ClientEngine) -> None:
        from confluent_kafka import KafkaException  # noqa: PLC0415 - loads librdkafka

        begin_ns = self.instants.start_ns - engine.head_start_ns
        self.stop.wait(max(0.0, (begin_ns - time.monotonic_ns()) / 1e9))
        failure: Exception | None = None
        try:
            engine.run(self.stop)
        except KafkaException as error:
            failure = translated(error.args[0], bootstrap=self.plan.bootstrap)
        except Exception as error:  # noqa: BLE001 - a thread has no caller: `drive` raises it
            failure = error
        finally:
            self.thread_cpu_s.append(time.thread_time())
        if failure is not None and not any(client.error for client in engine.clients):
            engine.clients[0].error = failure

    def _watch(
        self, threads: list[threading.Thread], watcher: Watcher | None, abort: AbortCheck | None
    ) -> Exception | None:
        while any(thread.is_alive() for thread in threads):
            before_s = time.monotonic()
            self.stop.wait(_LOOK_S)  # not a join: an interrupted join makes Python 3.11 take the thread for ended
            elapsed_s = max(0.0, (time.monotonic_ns() - self.instants.start_ns) / 1e9)
            self._look_at_clocks(elapsed_s, late_s=max(time.monotonic() - before_s - _LOOK_S, 0.0))
            for client in self.clients:
                client.recorder.fold()
            if watcher is not None:
                watcher(self._progress(elapsed_s))
            if abort is not None and elapsed_s > self.plan.warmup_s and abort.is_broken(self.clients):
                self.aborted.append(f"ended after {elapsed_s:.0f} s, as a threshold was broken: {abort.broken}")
            if self.aborted or any(client.error is not None for client in self.clients):
                return None
            failure = self.silence(elapsed_s)
            if failure is not None:
                return failure
        return None

    def _look_at_clocks(self, elapsed_s: float, *, late_s: float) -> None:
        """Note how late this look is, a standstill of the whole process, and a step of the clock."""
        self.lateness_s.append(late_s)
        if late_s >= PATIENCE_S:
            self.standstills.append(f"the load tester stood still for {late_s:.0f} s until {elapsed_s:.0f} s")
        before_ms = time.monotonic() * 1000
        wall_ms = self.clock.now_ms()
        after_ms = time.monotonic() * 1000
        if after_ms - before_ms < STEP_MS / 2:  # else the two clocks were not read at the same instant
            self.clocks.look(wall_ms=wall_ms, monotonic_ms=before_ms, elapsed_s=elapsed_s)

    def silence(self, elapsed_s: float) -> Exception | None:
        """Return the error of a run in which nothing was acknowledged for too long, None for any other."""
        heard = any(client.recorder.acked or client.recorder.throttle_count for client in self.clients)
        waited_s = max(min(elapsed_s, each.entity.stop_s or elapsed_s) - each.entity.start_s for each in self.clients)
        if heard or waited_s < _SILENCE_S:
            return None
        trouble = next((client.trouble for client in self.clients if client.trouble is not None), None)
        return trouble or ClusterUnreachableError(
            f"nothing was acknowledged in {_SILENCE_S:.0f} s by {self.plan.bootstrap}",
            hint="is the topic's leader alive, and the quota large enough for one request?",
        )

    def _progress(self, elapsed_s: float) -> RunProgress:
        total_s = self.plan.warmup_s + self.plan.duration_s
        shown_s = min(elapsed_s, total_s)
        return RunProgress(
            elapsed_s=shown_s,
            total_s=total_s,
            warming_up=shown_s < self.plan.warmup_s,
            entities=tuple(_client_progress(client, shown_s) for client in self.clients),
        )


def _client_progress(client: LoadClient, elapsed_s: float) -> ClientProgress:
    recorder = client.recorder
    span_ms = min(elapsed_s * 1000, client.plan.window_ms)
    trace, ratio = (recorder.charges, 1.0) if recorder.charged else (recorder.trace, client.wire.ratio)
    recent = trace.recent_bytes(int(elapsed_s * 1000 - span_ms)) * ratio
    return ClientProgress(
        entity=client.entity,
        rate=recent / span_ms * 1000 if span_ms else 0.0,
        acked=recorder.acked,
        waiting=recorder.sent - recorder.acked,
        throttle_count=recorder.throttle_count,
        throttle_sum_ms=recorder.throttle_sum_us / 1000,
    )
