"""Clients of load tests that recorded something, without a cluster."""

from dataclasses import dataclass
from fractions import Fraction

from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.loadtest.clients.engine import WireCount
from kafka_quotas.loadtest.measurement.delivery import Books
from kafka_quotas.loadtest.measurement.recorder import Recorder
from kafka_quotas.loadtest.plan.plan import ClientLoad, ClientName, LoadPlan
from kafka_quotas.loadtest.plan.workload import ClientKind, Workload
from kafka_quotas.loadtest.results.result import CpuUse, LoadResult
from kafka_quotas.loadtest.verdict.analysis import MeasuredClient, load_result

MS = 1_000_000
WINDOW = QuotaWindow(samples=3, window_s=1)


@dataclass
class RecordedClient:
    """A client whose recorder is filled by the test."""

    entity: ClientLoad
    recorder: Recorder
    wire: WireCount
    unfinished: int = 0
    error: Exception | None = None

    def measured(self, enforcers: int = 1) -> MeasuredClient:
        """What is recorded by now."""
        failed, unsent = self.recorder.failures.total(), self.recorder.dropped_count
        books = Books(
            due=self.recorder.acked + failed + unsent + self.unfinished,
            acknowledged=self.recorder.acked,
            failed=failed,
            unsent=unsent,
            unanswered=self.unfinished,
        )
        return MeasuredClient(
            entity=self.entity,
            recorder=self.recorder,
            wire=self.wire,
            unfinished=self.unfinished,
            books=books,
            enforcers=enforcers,
        )

    @property
    def trouble(self) -> Exception | None:
        return self.error


def recorded(
    client_id: str | None = "app",
    *,
    user: str | None = None,
    workload: Workload = Workload.PRODUCE,
    kind: ClientKind = ClientKind.RAW,
    quota: float | None = None,
    rate: Fraction | None = None,
    control: bool = False,
    wire: tuple[int, int] = (0, 0),
) -> RecordedClient:
    """A client that took part from the start of a load at 0 ns, without warm-up."""
    entity = ClientLoad(
        name=ClientName(user=user, client_id=client_id),
        workload=workload,
        topic="t",
        quota=quota,
        client=kind,
        arrivals_per_second=rate,
        control=control,
    )
    recorder = Recorder(start_ns=0, measure_from_ns=0, window_ms=WINDOW.samples * WINDOW.window_ms)
    wire_bytes, payload_bytes = wire
    return RecordedClient(
        entity=entity, recorder=recorder, wire=WireCount(wire_bytes=wire_bytes, payload_bytes=payload_bytes)
    )


def plan_of(*clients: RecordedClient, duration_s: float = 20.0) -> LoadPlan:
    """The plan of a run of these clients."""
    return LoadPlan(
        bootstrap="127.0.0.1:9092",
        entities=tuple(client.entity for client in clients),
        duration_s=duration_s,
        warmup_s=0.0,
        window=WINDOW,
        run_id=7,
    )


def run_of(
    *clients: RecordedClient, elapsed_s: float = 20.0, enforcers: int = 1, cpu: float = 0.2, late_ms: float = 0.0
) -> LoadResult:
    """The result of a run of these clients."""
    plan = plan_of(*clients, duration_s=elapsed_s)
    return load_result(
        plan, [client.measured(enforcers) for client in clients], run_without_clients(plan, elapsed_s, cpu, late_ms)
    )


def run_without_clients(plan: LoadPlan, elapsed_s: float, cpu: float = 0.1, late_ms: float = 0.0) -> LoadResult:
    """What is known of a run beside its clients."""
    return LoadResult(
        bootstrap=plan.bootstrap,
        run_id=plan.run_id,
        title="load-test",
        started_ms=1_700_000_000_000,
        elapsed_s=elapsed_s,
        warmup_s=plan.warmup_s,
        window=plan.window,
        cpu=CpuUse(process=cpu, python=cpu, cores=2, late_ms=late_ms),
        interrupted=False,
        entities=(),
    )
