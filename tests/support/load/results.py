"""Results of load tests that never ran, for whatever shows or keeps one."""

from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.loadtest.measurement.delivery import Books
from kafka_quotas.loadtest.measurement.histogram import LatencySummary
from kafka_quotas.loadtest.measurement.recorder import ThrottleSummary
from kafka_quotas.loadtest.measurement.traces import Slot
from kafka_quotas.loadtest.plan.client_verdict import ClientVerdict, ObservationKind
from kafka_quotas.loadtest.plan.plan import ClientName
from kafka_quotas.loadtest.plan.workload import ClientKind, Workload
from kafka_quotas.loadtest.results.result import ClientResult, CpuUse, LoadResult, WindowSample
from kafka_quotas.loadtest.verdict.judging import Evidence, judge_run

_LATENCY = LatencySummary(
    count=100, min_us=200, mean_us=950.5, p50_us=900, p90_us=1500, p99_us=12_300, p999_us=14_000, max_us=15_000
)
_NO_THROTTLE = ThrottleSummary(count=0, sum_ms=0.0, p50_ms=0.0, p90_ms=0.0, p99_ms=0.0, max_ms=0.0)


def greedy(*, ok: bool = True, failures: tuple[tuple[str, int], ...] = ()) -> ClientResult:
    """A producer with a quota of 2 MB/s."""
    achieved = 1_996_000.0 if ok else 3_000_000.0
    return ClientResult(
        name=ClientName(user=None, client_id="greedy"),
        workload=Workload.PRODUCE,
        client=ClientKind.LIBRDKAFKA,
        topic="t",
        enforcers=1,
        verdict=ClientVerdict(
            kind=ObservationKind.GREEDY,
            ok=ok,
            achieved=achieved,
            offered=None,
            quota=2e6,
            ratio=achieved / 2e6,
            lower=0.98,
            upper=1.02,
            cycles=5,
            span_ms=17_000.0,
            evidence="the evidence",
        ),
        sent=5000,
        acked=4900,
        unfinished=100,
        dropped=0,
        books=Books(due=5000, acknowledged=4900, failed=0, unsent=0, unanswered=100),
        failures=failures,
        payload_bytes=5_017_600,
        wire_ratio=1.01,
        service=_LATENCY,
        schedule_delay=_LATENCY,
        response=_LATENCY,
        throttle=ThrottleSummary(
            count=50, sum_ms=8000.0, p50_ms=100.0, p90_ms=600.0, p99_ms=1000.0, max_ms=1100.0, responses=400
        ),
        sample_s=1.0,
        seconds=tuple(
            Slot(start_ms=s * 1000, rate=2e6, throttled=s, throttle_max_ms=100 if s else 0) for s in range(20)
        ),
        windows=_windows(2e6, throttle_avg_ms=20.0),
    )


def unlimited(workload: Workload = Workload.CONSUME) -> ClientResult:
    """A client without a quota."""
    return ClientResult(
        name=ClientName(user="alice", client_id="free"),
        workload=workload,
        client=ClientKind.LIBRDKAFKA,
        topic="t",
        enforcers=2,
        verdict=ClientVerdict(
            kind=ObservationKind.UNLIMITED,
            ok=True,
            achieved=8e6,
            offered=8e6,
            quota=None,
            ratio=None,
            lower=None,
            upper=None,
            cycles=0,
            span_ms=20_000.0,
            evidence="all it offered",
        ),
        sent=10,
        acked=10,
        unfinished=0,
        dropped=0,
        books=Books(due=10, acknowledged=10, failed=0, unsent=0, unanswered=0, settled=10),
        failures=(),
        payload_bytes=10_240,
        wire_ratio=1.01,
        service=_LATENCY,
        schedule_delay=_LATENCY,
        response=_LATENCY,
        throttle=_NO_THROTTLE,
        sample_s=1.0,
        seconds=tuple(Slot(start_ms=s * 1000, rate=8e6) for s in range(20)),
        windows=_windows(8e6, throttle_avg_ms=0.0),
    )


def result(*entities: ClientResult, interrupted: bool = False, evidence: Evidence | None = None) -> LoadResult:
    """A run of these clients, judged."""
    ended = LoadResult(
        bootstrap="127.0.0.1:9092",
        run_id=0xFEED,
        title="a run",
        started_ms=1_700_000_000_000,
        elapsed_s=23.0,
        warmup_s=3.0,
        window=QuotaWindow(samples=3),
        cpu=CpuUse(process=0.25, python=0.125, cores=2),
        interrupted=interrupted,
        entities=entities,
    )
    return judge_run(ended, evidence or Evidence())


def _windows(rate: float, *, throttle_avg_ms: float) -> tuple[WindowSample, ...]:
    return tuple(
        WindowSample(
            start_s=float(start),
            length_s=3.0,
            rate=rate,
            responses=60,
            throttled=7 if throttle_avg_ms else 0,
            throttle_avg_ms=throttle_avg_ms,
            throttle_max_ms=int(2 * throttle_avg_ms),
        )
        for start in (0, 3)
    )
