"""A scenario: a load test that is written down, with all it needs, what it sets, and what is to come out.

Contract: pure values as the file has them; counts are not spelled out and nothing is scaled. Rates and quotas to judge
by become figures only when the quotas in force are known (`scenario_plan`).
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, QuotaWindow
from kafka_quotas.loadtest.plan.offered_rate import AS_FAST_AS_POSSIBLE, OfferedRate
from kafka_quotas.loadtest.plan.workload import Arrival, ClientKind, Loop, MutationFlood, RequestFlood, Workload

SCENARIO_SCHEMA: Final = "kafka-quotas.scenario/1"
PREFIX: Final = "{prefix}"
NUMBER: Final = "{n}"
"""Stands in a client-id, user or topic for the number of each of `count` entities, from 1."""


class TargetNeed(StrEnum):
    """What a scenario can run on: anything that keeps quotas, a real broker, or the daemon (anywhere)."""

    ANY = "any"
    REAL_BROKER = "real-broker"
    DAEMON = "daemon"


class Security(StrEnum):
    """How clients say who they are."""

    PLAINTEXT = "plaintext"
    SASL_PLAIN = "sasl-plain"
    SASL_SCRAM = "sasl-scram"
    TLS = "tls"


class Variant(StrEnum):
    """The same load with the scenario's quotas, and without them for comparison."""

    WITH_QUOTAS = "with-quotas"
    WITHOUT_QUOTAS = "without-quotas"


class ProbeKind(StrEnum):
    """What a probe asks again and again while the load runs."""

    CREATE_TOPIC = "create-topic"


class Scaled(StrEnum):
    """What `--scale` multiplies."""

    COUNT = "count"
    FILL = "fill"
    RATE = "rate"
    QUOTAS = "quotas"
    TOPICS = "topics"
    CONNECTIONS = "connections"
    DURATION = "duration"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioTopic:
    """A topic that the run makes, under its prefix, and removes. `fill` records are in it before the load starts.

    `is_there`: it is in the cluster already, by its own name, and stays as it is.
    """

    name: str
    partitions: int = 1
    replication_factor: int = 1
    fill: int = 0
    record_size: int = 1024
    is_there: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioQuota:
    """Quotas to set on one entity before the run and to put back after it; key names with values in their units."""

    entity: Entity
    values: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioClient:
    """One client, or `count` alike. `judge_by` is the quota to judge by, instead of what the quotas in force say.

    `is_judged` False leaves its rate alone. `expected_errors` are what it is to fail with now and then, by Kafka's
    names; how often `expect` judges.
    It takes part from `start_s` to `stop_s` of the measured time (None: its end), and where `start_s` is 0 in the
    warm-up too. `client_id` None is a client that sends none. Sizes are bytes.
    """

    client_id: str | None
    does: Workload
    user: str | None = None
    count: int = 1
    topic: str = ""
    rate: OfferedRate = AS_FAST_AS_POSSIBLE
    judge_by: float | None = None
    unlimited: bool = False
    is_judged: bool = True
    client: ClientKind = ClientKind.LIBRDKAFKA
    honor_throttle: bool = True
    arrival: Arrival = Arrival.CONSTANT
    burst_size: int = 1
    loop: Loop = Loop.OPEN
    in_flight: int = 5
    connections: int = 1
    record_size: int = 1024
    batch_bytes: int | None = None
    acks: str = "all"
    compression: str = "none"
    group: str | None = None
    control: bool = False
    start_s: float = 0.0
    stop_s: float | None = None
    flood: RequestFlood | MutationFlood | None = None
    expected_errors: tuple[str, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A question asked every `every_s` during the load, each answer awaited for at most `timeout_s`."""

    kind: ProbeKind
    every_s: float = 1.0
    timeout_s: float = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """What `--scale` multiplies, and the scale that suits a laptop."""

    multiplies: tuple[Scaled, ...] = ()
    laptop: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A load test that is written down. `warmup_s` None is one quota window; `solo_s` is the control's run alone.

    A control client may take `control_factor` times its p99 there (None: the usual). `expect` are thresholds of its own
    (see `expectation`). `daemon_policy` is the text of a policy file (TOML) for the daemon, in which PREFIX stands for
    what its topics' names begin with; `daemon_costs` is that of a cost model (JSON), `daemon_options` are further
    arguments of `daemon run`. `broker_settings` are further lines of `server.properties` for a broker that is started
    for it.
    """

    name: str
    title: str
    entities: tuple[ScenarioClient, ...]
    duration_s: float
    source: str = ""
    needs: TargetNeed = TargetNeed.ANY
    window: QuotaWindow = DEFAULT_WINDOW
    warmup_s: float | None = None
    solo_s: float = 10.0
    control_factor: float | None = None
    security: Security = Security.PLAINTEXT
    topics: tuple[ScenarioTopic, ...] = ()
    quotas: tuple[ScenarioQuota, ...] = ()
    probes: tuple[Probe, ...] = ()
    variants: tuple[Variant, ...] = (Variant.WITH_QUOTAS,)
    expect: tuple[str, ...] = ()
    scaling: Scaling = field(default_factory=Scaling)
    daemon_policy: str = ""
    daemon_costs: str = ""
    daemon_options: tuple[str, ...] = ()
    broker_settings: tuple[tuple[str, str], ...] = ()

    @property
    def window_s(self) -> float:
        """The length of the quota window in seconds."""
        return float(self.window.samples * self.window.window_s)

    @property
    def unjudged_s(self) -> float:
        """The warm-up, in seconds."""
        return self.window_s if self.warmup_s is None else self.warmup_s

    @property
    def clients(self) -> int:
        """How many clients take part."""
        return sum(entity.count for entity in self.entities)

    @property
    def makes_topics(self) -> bool:
        """Whether topics are made for it before the load."""
        return any(not topic.is_there for topic in self.topics)

    @property
    def mutates(self) -> bool:
        """Whether it makes or removes topics while the load runs."""
        return bool(self.probes) or any(entity.does is Workload.MUTATE for entity in self.entities)
