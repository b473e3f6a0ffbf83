"""The result of a run, as values for reports, tables, charts and later comparisons."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from kafka_quotas.loadtest.judgement import Judgement, State, overall
from kafka_quotas.loadtest.plan.plan import ClientName
from kafka_quotas.loadtest.plan.workload import UNITS, ClientKind, RateUnit, Workload
from kafka_quotas.loadtest.record.books import Books
from kafka_quotas.loadtest.record.delivery import Delivery
from kafka_quotas.loadtest.record.histogram import LatencySummary
from kafka_quotas.loadtest.record.recorder import Recorder, ThrottleSummary
from kafka_quotas.loadtest.result.effect import QuotaEffect
from kafka_quotas.loadtest.result.prediction import Charge, Prediction
from kafka_quotas.loadtest.result.verdict import ClientVerdict

CONTROL_FACTOR = 3.0
"""The allowed p99 of a control client as a multiple of its solo p99, by default."""
EntityKey = tuple[ClientName, Workload]
"""The key that identifies a client of one run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondSample:
    """One sample of a run, one second long or, in very long runs, longer for all of a client."""

    second: int
    """The start, in seconds since the start of the load."""
    rate: float
    records: int = 0
    responses: int = 0
    """The number of all responses, 0 where the client can't count them."""
    throttled: int = 0
    throttle_sum_ms: int = 0
    throttle_max_ms: int = 0
    failed: int = 0
    dropped: int = 0


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
    """The cores of the machine."""
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
    """The outcome of all that was due."""
    failures: tuple[tuple[str, int], ...]
    payload_bytes: int
    wire_ratio: float
    """Bytes on the wire per byte of payload."""
    service: LatencySummary
    schedule_delay: LatencySummary
    response: LatencySummary
    throttle: ThrottleSummary
    sample_s: float
    seconds: tuple[SecondSample, ...]
    windows: tuple[WindowSample, ...]
    quotas: tuple[tuple[str, float], ...] = ()
    """Every quota in force that concerned it, by the name of its key, per broker."""
    control: bool = False
    shares_quota: bool = False
    solo: LatencySummary | None = None
    """The latency of a control client in a run of its own."""
    effect: QuotaEffect | None = None
    """The effect of the quotas on a control client, None if that was not tried."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSample:
    """One bucket in a broker's own metrics at one time, as in `core.resolution.usage.Usage`."""

    t_s: float
    """Seconds since the start of the load."""
    broker: str
    quota_key: str
    user: str
    client_id: str
    observed: float
    throttle_ms: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """The result of one probe."""

    at_s: float
    """When it was sent, in seconds since the start."""
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
    window_samples: int
    window_size_s: int
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
    broker_samples: tuple[BrokerSample, ...] = ()
    probes: tuple[ProbeResult, ...] = ()

    @property
    def state(self) -> State:
        """The state of all judgements together."""
        return overall(self.judgements)

    @property
    def ok(self) -> bool:
        """Whether the run was complete and every judgement is met."""
        return self.state is State.MET
