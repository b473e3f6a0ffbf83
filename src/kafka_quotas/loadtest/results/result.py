"""The result of a run and of each of its clients, as one record each."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.loadtest.judgement import Judgement, State, overall
from kafka_quotas.loadtest.measurement.delivery import Books, Delivery
from kafka_quotas.loadtest.measurement.histogram import LatencySummary
from kafka_quotas.loadtest.measurement.recorder import Recorder, ThrottleSummary
from kafka_quotas.loadtest.measurement.traces import Charge, Slot
from kafka_quotas.loadtest.plan.client_verdict import ClientVerdict
from kafka_quotas.loadtest.plan.plan import ClientName, EntityKey
from kafka_quotas.loadtest.plan.workload import UNITS, ClientKind, RateUnit, Workload
from kafka_quotas.loadtest.results.prediction import Prediction, PredictionSource

LEAST_EFFECT = 1.2
"""How many times shorter the quotas must make a control client's p90, for them to be what spares it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaEffect:
    """The p90 of a control client beside the others, without the quotas as a multiple of that with them.

    `low` and `high` bound the multiple with a confidence of 95 %. It is of the p90, since the p99 of a short run is a
    handful of requests, and scatters too much to compare.
    """

    with_us: tuple[int, ...]
    """The p90 of each run with the quotas, in microseconds."""
    without_us: tuple[int, ...]
    """The p90 of each run without them."""
    ratio: float
    low: float
    high: float

    @property
    def is_shown(self) -> bool:
        """Whether the quotas shorten it by `LEAST_EFFECT` at least, whatever of the interval is true."""
        return self.low >= LEAST_EFFECT

    @property
    def is_refuted(self) -> bool:
        """Whether they shorten it by less, whatever of the interval is true."""
        return self.high < LEAST_EFFECT

    @property
    def evidence(self) -> str:
        """The multiple with its interval, in words."""
        runs = f"{len(self.with_us)} runs with and {len(self.without_us)} without"
        interval = f"95 % interval {self.low:.3g} to {self.high:.3g}, from {runs}; {LEAST_EFFECT:g} wanted"
        return f"p90 {self.ratio:.3g} times as long without the quotas ({interval})"


CONTROL_FACTOR = 3.0
"""The allowed p99 of a control client as a multiple of its solo p99, by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSample:
    """One quota window: its rate, and throttle times like a client's throttle-time-avg and -max."""

    start_s: float
    length_s: float
    rate: float
    responses: int
    throttled: int
    throttle_avg_ms: float | None
    """The average over all responses, None where there were throttle times and the client can't count responses."""
    throttle_max_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuUse:
    """The CPU seconds of this tool per second of the run."""

    process: float
    """Those of the whole process."""
    python: float
    """Those of its Python threads, of which one runs at a time."""
    cores: int
    late_ms: float = 0.0
    """The average delay of a sleeping thread, which waits for a core or for Python."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientResult:
    """The result of one client.

    Counts and amounts are of the whole run, warm-up included. Latencies are not.
    """

    name: ClientName
    workload: Workload
    client: ClientKind
    topic: str
    enforcers: int
    """The number of brokers that kept the quota, each for itself."""
    verdict: ClientVerdict
    """The verdict on the sum over those brokers."""
    sent: int
    acked: int
    unfinished: int
    """Records that were sent and still unanswered at the end."""
    dropped: int
    """Records that were due and never sent, because they were overdue for too long."""
    books: Books
    failures: tuple[tuple[str, int], ...]
    payload_bytes: int
    wire_ratio: float
    """Bytes on the wire per byte of payload."""
    service: LatencySummary
    schedule_delay: LatencySummary
    response: LatencySummary
    throttle: ThrottleSummary
    sample_s: float
    seconds: tuple[Slot, ...]
    """All whole slots of the run, also those without activity."""
    windows: tuple[WindowSample, ...]
    quotas: tuple[tuple[str, float], ...] = ()
    """Every quota in force that concerned it, by the name of its key, per broker."""
    control: bool = False
    shares_quota: bool = False
    solo: LatencySummary | None = None
    """The latency of a control client in a run of its own."""
    effect: QuotaEffect | None = None
    delivery: Delivery | None = None
    prediction: Prediction | None = None
    recorder: Recorder | None = field(default=None, compare=False, repr=False)
    """The measurements that the figures come from, None where they were read from a file."""
    charges: Sequence[Charge] = field(default=(), compare=False, repr=False)
    """The charges in our daemon's event log, empty where the figures were read from a file."""

    @property
    def key(self) -> EntityKey:
        """The key that identifies it among the clients of the run."""
        return self.name, self.workload

    @property
    def unit(self) -> RateUnit:
        """The unit of its rates."""
        return UNITS[self.workload]

    @property
    def ok(self) -> bool:
        """Whether it got what its quota promises and no record was given up."""
        return self.verdict.ok and not self.failures


def recorded_charges(entity: ClientResult) -> tuple[PredictionSource, list[Charge]]:
    """Return the best known charges to a client's quota, in milliseconds since the start of the load.

    They are from the daemon's log where there is one, with those from before the load. Else they are from single
    responses, else from acknowledgements with the bytes on the wire.
    """
    recorder = entity.recorder
    if entity.charges:
        return PredictionSource.EVENT_LOG, list(entity.charges)
    if recorder is None:
        return PredictionSource.ACKNOWLEDGEMENTS, []
    if len(recorder.responses):
        return PredictionSource.RESPONSES, list(recorder.responses)
    entries = recorder.trace.entries()
    return PredictionSource.ACKNOWLEDGEMENTS, [
        Charge(t_ms=t_ms, charged=size * entity.wire_ratio) for t_ms, size in entries
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """The result of one probe."""

    at_s: float
    wait_ms: float | None
    """How long it took, None where it got no answer."""
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """The result of a whole run."""

    bootstrap: str
    run_id: int
    title: str
    started_ms: int
    elapsed_s: float
    warmup_s: float
    window: QuotaWindow
    cpu: CpuUse
    interrupted: bool
    """Whether the run was ended early, with measurements up to then."""
    entities: tuple[ClientResult, ...]
    control_factor: float = CONTROL_FACTOR
    """The allowed p99 of a control client, as a multiple of its solo p99."""
    judgements: tuple[Judgement, ...] = ()
    warnings: tuple[str, ...] = ()
    """Warnings about the run itself, such as a machine that was too slow for it."""
    outages: tuple[str, ...] = ()
    """Whatever interrupted the experiment itself, such as a restart of its target, one line each."""
    restarts: tuple[str, ...] = ()
    """The restarts of the target that were planned, and took place as planned, one line each."""
    probes: tuple[ProbeResult, ...] = ()

    @property
    def state(self) -> State:
        """The state of all judgements together."""
        return overall(self.judgements)

    @property
    def ok(self) -> bool:
        """Whether the run was complete and every judgement is met."""
        return self.state is State.MET
