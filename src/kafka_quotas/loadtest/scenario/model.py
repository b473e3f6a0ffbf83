"""The model of a scenario: a load test in a file, with its needs, settings and expected results.

Contract: pure values as the file has them, with counts not expanded and nothing scaled. Rates, and quotas to judge by,
become figures only when the quotas in force are known (`scenario_plan`).
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, QuotaWindow
from kafka_quotas.loadtest.plan.plan import ClientSettings, PlannedRestart
from kafka_quotas.loadtest.plan.workload import (
    AS_FAST_AS_POSSIBLE,
    Flood,
    OfferedRate,
    Stage,
    Workload,
)

SCENARIO_SCHEMA: Final = "kafka-quotas.scenario/1"
PREFIX: Final = "{prefix}"
NUMBER: Final = "{n}"
"""The placeholder in a client-id, user or topic for the number of each of `count` clients, from 1."""


class TargetNeed(StrEnum):
    """The target that a scenario needs: any that keeps quotas, a real broker, or the daemon (anywhere)."""

    ANY = "any"
    REAL_BROKER = "real-broker"
    DAEMON = "daemon"


class Security(StrEnum):
    """The way in which clients authenticate."""

    PLAINTEXT = "plaintext"
    SASL_PLAIN = "sasl-plain"
    SASL_SCRAM = "sasl-scram"
    TLS = "tls"


class Variant(StrEnum):
    """A run of the same load with the scenario's quotas, or without them for comparison."""

    WITH_QUOTAS = "with-quotas"
    WITHOUT_QUOTAS = "without-quotas"


class ProbeKind(StrEnum):
    """The request that a probe repeats while the load runs."""

    CREATE_TOPIC = "create-topic"


class Scaled(StrEnum):
    """A figure that `--scale` multiplies."""

    COUNT = "count"
    FILL = "fill"
    RATE = "rate"
    QUOTAS = "quotas"
    TOPICS = "topics"
    CONNECTIONS = "connections"
    DURATION = "duration"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioTopic:
    """A topic of a scenario, which the run creates under its prefix, and removes."""

    name: str
    partitions: int = 1
    replication_factor: int = 1
    fill: int = 0
    """The number of records in it before the load starts."""
    record_size: int = 1024
    """Bytes of each of these records."""
    is_there: bool = False
    """Whether it exists in the cluster by its own name, and stays as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioQuota:
    """Quotas of one entity that the run sets before the load and restores after it."""

    entity: Entity
    values: tuple[tuple[str, float], ...]
    """Key names with values, in the units of the keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaStep:
    """A change of one entity's quotas while the load runs."""

    at_s: float
    """When it is made, in seconds of the measured time."""
    quota: ScenarioQuota


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioClient(ClientSettings):
    """One client, or `count` alike."""

    client_id: str | None
    """The client-id, None for a client that sends none."""
    does: Workload
    user: str | None = None
    count: int = 1
    topic: str = ""
    rate: OfferedRate = AS_FAST_AS_POSSIBLE
    """The rate, which stages begin with."""
    stages: tuple[Stage, ...] = ()
    """The changes of its rate in order, from the end of the warm-up or from its later start on."""
    judge_by: float | None = None
    """The quota to judge by instead of the quotas in force, None for those."""
    unlimited: bool = False
    """Whether it is judged as a client without a quota."""
    start_s: float = 0.0
    """When it starts, in seconds of the measured time, 0 for the start of the warm-up."""
    stop_s: float | None = None
    """When it stops, in seconds of the measured time, None for its end."""
    flood: Flood | None = None
    properties: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A request that is repeated during the load."""

    kind: ProbeKind
    every_s: float = 1.0
    """Seconds between two requests."""
    timeout_s: float = 120.0
    """The longest wait for an answer (seconds)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """The effect of `--scale` on a scenario."""

    multiplies: tuple[Scaled, ...] = ()
    """The figures that it multiplies."""
    laptop: float = 1.0
    """The scale that suits a laptop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A load test in a file."""

    name: str
    title: str
    entities: tuple[ScenarioClient, ...]
    duration_s: float
    source: str = ""
    needs: TargetNeed = TargetNeed.ANY
    window: QuotaWindow = DEFAULT_WINDOW
    warmup_s: float | None = None
    """Seconds of warm-up, None for one quota window."""
    solo_s: float = 10.0
    """Seconds for which control clients run alone."""
    control_factor: float | None = None
    """The allowed p99 of a control client as a multiple of that alone, None for the usual."""
    security: Security = Security.PLAINTEXT
    topics: tuple[ScenarioTopic, ...] = ()
    quotas: tuple[ScenarioQuota, ...] = ()
    quota_steps: tuple[QuotaStep, ...] = ()
    """The changes of quotas during the load, which the run restores with the quotas."""
    probes: tuple[Probe, ...] = ()
    variants: tuple[Variant, ...] = (Variant.WITH_QUOTAS,)
    expect: tuple[str, ...] = ()
    """Thresholds, as for `--expect`."""
    abort_on: tuple[str, ...] = ()
    """Thresholds that end the run as soon as they are broken."""
    restarts: tuple[PlannedRestart, ...] = ()
    """Restarts of the target that somebody makes during the run, counted from the end of the warm-up."""
    scaling: Scaling = field(default_factory=Scaling)
    daemon_policy: str = ""
    """The text of a policy file (TOML) for the daemon, with PREFIX as placeholder for the start of its topics' names.
    """
    daemon_costs: str = ""
    """The text of a cost model (JSON) for the daemon."""
    daemon_count: int = 1
    """The daemons in front of the cluster, over which the clients are spread in turn."""
    is_fleet: bool = False
    """Whether these daemons hold every limit together."""
    daemon_restarts_s: tuple[float, ...] = ()
    """When the run restarts one of these daemons after the other, counted from the end of the warm-up."""
    daemon_options: tuple[str, ...] = ()
    """Further arguments of `daemon run`."""
    broker_settings: tuple[tuple[str, str], ...] = ()
    """Further lines of `server.properties`, for a broker that is started for the scenario."""

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
        """The number of clients."""
        return sum(entity.count for entity in self.entities)

    @property
    def makes_topics(self) -> bool:
        """Whether the run creates topics before the load."""
        return any(not topic.is_there for topic in self.topics)

    @property
    def mutates(self) -> bool:
        """Whether it creates or removes topics while the load runs."""
        return bool(self.probes) or any(entity.does is Workload.MUTATE for entity in self.entities)
