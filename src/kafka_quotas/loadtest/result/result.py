"""What a run found, as values: everything a report, a table, a chart or a later comparison needs."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from kafka_quotas.loadtest.judgement import Judgement, State, overall
from kafka_quotas.loadtest.plan.plan import ClientName
from kafka_quotas.loadtest.plan.workload import ClientKind, RateUnit, Workload
from kafka_quotas.loadtest.record.delivery import Delivery
from kafka_quotas.loadtest.record.histogram import LatencySummary
from kafka_quotas.loadtest.record.recorder import Recorder, ThrottleSummary
from kafka_quotas.loadtest.result.prediction import Charge, Prediction
from kafka_quotas.loadtest.result.verdict import ClientVerdict

CONTROL_FACTOR = 3.0
"""How many times its solo p99 a control client's p99 may be, by default."""
EntityKey = tuple[ClientName, Workload]
"""What tells the clients of one run apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondSample:
    """What happened from `second` on: the rate, and the throttle times announced.

    `responses` counts all of them, 0 where the client can't tell. A sample lasts one second; in very long runs it
    lasts longer, all samples of a client equally.
    """

    second: int
    rate: float
    records: int = 0
    responses: int = 0
    throttled: int = 0
    throttle_sum_ms: int = 0
    throttle_max_ms: int = 0
    failed: int = 0
    dropped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSample:
    """One quota window: its rate, and throttle times over all requests, as a client's throttle-time-avg and -max.

    `throttle_avg_ms` is None where there were throttle times but the client can't tell how many responses.
    """

    start_s: float
    length_s: float
    rate: float
    responses: int
    throttled: int
    throttle_avg_ms: float | None
    throttle_max_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuUse:
    """CPU seconds of this tool per second of the run: all of it, and its Python threads, of which one runs at a time.

    `cores` are those of the machine. `late_ms` is how much later than asked for a sleeping thread woke, on average:
    the wait for a core, or for Python.
    """

    process: float
    python: float
    cores: int
    late_ms: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientResult:
    """One client's run. Counts and amounts are of the whole run, warm-up included; latencies are not.

    `enforcers` brokers kept the quota, each for itself; the verdict is on their sum. `unfinished` records were sent and
    still unanswered at the end, `dropped` ones were due and never sent. `wire_ratio` is bytes on the wire per payload
    byte. `solo` is a control client's latency in a run of its own. `recorder` is what the figures were made of, and
    `charges` what our daemon's event log says of the client; neither is there where the figures were read from a file.
    """

    name: ClientName
    workload: Workload
    client: ClientKind
    topic: str
    enforcers: int
    verdict: ClientVerdict
    sent: int
    acked: int
    unfinished: int
    dropped: int
    failures: tuple[tuple[str, int], ...]
    payload_bytes: int
    wire_ratio: float
    service: LatencySummary
    schedule_delay: LatencySummary
    response: LatencySummary
    throttle: ThrottleSummary
    sample_s: float
    seconds: tuple[SecondSample, ...]
    windows: tuple[WindowSample, ...]
    control: bool = False
    shares_quota: bool = False
    solo: LatencySummary | None = None
    delivery: Delivery | None = None
    prediction: Prediction | None = None
    recorder: Recorder | None = field(default=None, compare=False, repr=False)
    charges: Sequence[Charge] = field(default=(), compare=False, repr=False)

    @property
    def key(self) -> EntityKey:
        """What tells it from the run's other clients."""
        return self.name, self.workload

    @property
    def unit(self) -> RateUnit:
        """What its rates count."""
        return self.verdict.unit

    @property
    def ok(self) -> bool:
        """Whether it got what its quota promises and no record was given up."""
        return self.verdict.ok and not self.failures


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSample:
    """One bucket in a broker's own metrics, at a time since the load's start; see `core.resolution.usage.Usage`."""

    t_s: float
    broker: str
    quota_key: str
    user: str
    client_id: str
    observed: float
    throttle_ms: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """One probe: when it was asked (seconds since the start), and what it took; `wait_ms` None: it got no answer."""

    at_s: float
    wait_ms: float | None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """A whole run. `interrupted`: it was ended early, and what is here was measured until then.

    A control client may take `control_factor` times its solo p99. `warnings` are about the run itself, such as a
    machine that was too slow for it.
    """

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
    entities: tuple[ClientResult, ...]
    control_factor: float = CONTROL_FACTOR
    judgements: tuple[Judgement, ...] = ()
    warnings: tuple[str, ...] = ()
    broker_samples: tuple[BrokerSample, ...] = ()
    probes: tuple[ProbeResult, ...] = ()

    @property
    def state(self) -> State:
        """How the run turned out as a whole."""
        return overall(self.judgements)

    @property
    def ok(self) -> bool:
        """Whether the run was whole and every judgement is met."""
        return self.state is State.MET
