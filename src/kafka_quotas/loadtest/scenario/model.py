"""The model of a scenario: a load test in a file, with its needs, settings and expected results.

Contract: pure values as the file has them, with counts not expanded and nothing scaled. Rates, and quotas to judge by,
become figures only when the quotas in force are known (`scenario_plan`).
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, QuotaWindow
from kafka_quotas.loadtest.plan.document import (
    SHARE,
    SIZE,
    InFile,
    SectionField,
    duration_of,
    list_of,
    named_by,
    parsed_by,
    section,
    section_of,
    text_of,
    whole_of,
)
from kafka_quotas.loadtest.plan.plan import NAME, ClientSettings, PlannedRestart
from kafka_quotas.loadtest.plan.workload import (
    AS_FAST_AS_POSSIBLE,
    Flood,
    OfferedRate,
    Stage,
    Workload,
    parse_offered_rate,
)

SCENARIO_SCHEMA: Final = "kafka-quotas.scenario/1"
PREFIX: Final = "{prefix}"
NUMBER: Final = "{n}"
"""The placeholder in a client-id, user or topic for the number of each of `count` clients, from 1."""
TOPIC_NAME: Final = text_of(r"[A-Za-z0-9._{}-]{1,100}", example="orders")
LINE: Final = text_of(r"[^\n]+", example="one line of text")
WINDOW: Final = section(
    "window",
    (
        SectionField("samples", whole_of(highest=1000), "quota.window.num of what keeps the quotas"),
        SectionField("seconds", whole_of(highest=3600), "quota.window.size.seconds of it", target="window_s"),
    ),
    build=QuotaWindow,
)


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

    name: Annotated[str, InFile("its name, which gets the run's prefix", TOPIC_NAME)]
    partitions: Annotated[int, InFile("how many partitions it has", whole_of(highest=100_000))] = 1
    replication_factor: Annotated[int, InFile("how many replicas each has", whole_of(highest=100))] = 1
    fill: Annotated[int, InFile("how many records are in it before the load starts", whole_of(lowest=0))] = 0
    record_size: Annotated[int, InFile("bytes in each of these records", SIZE)] = 1024
    is_there: Annotated[
        bool, InFile("whether it is in the cluster by its own name already, and stays as it is", name="existing")
    ] = False


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

    client_id: Annotated[
        str | None,
        InFile(
            "its client-id; null sends none (raw clients only)",
            text_of(nullable=True, pattern=r"[^\n/]+", example="app-{n}"),
        ),
    ]
    user: Annotated[
        str | None,
        InFile("its user, where the scenario's security has users", text_of(r"[^\n/]+", example="alice")),
    ] = None
    count: Annotated[int, InFile(f"how many alike, numbered from 1 where {NUMBER} stands", whole_of(highest=1000))] = 1
    does: Annotated[Workload, InFile("produce, consume, requests, mutate or connect")]
    topic: Annotated[str, InFile("the topic it uses, one of those above", TOPIC_NAME)] = ""
    rate: Annotated[
        OfferedRate,
        InFile("what it offers: max, 5MB/s, 200rec/s, 10req/s, 2x-quota", parsed_by(parse_offered_rate)),
    ] = AS_FAST_AS_POSSIBLE
    """The rate, which stages begin with."""
    stages: Annotated[
        tuple[Stage, ...],
        InFile(
            "how its rate changes, from `rate` (or 0) on, once the warm-up is over",
            list_of(section_of(Stage, "a stage")),
        ),
    ] = ()
    """The changes of its rate in order, from the end of the warm-up or from its later start on."""
    judge_by: float | None = None
    """The quota to judge by instead of the quotas in force, None for those."""
    unlimited: bool = False
    """Whether it is judged as a client without a quota."""
    start_s: Annotated[float, InFile("when it joins, counted from the end of the warm-up", duration_of(), "start")] = (
        0.0
    )
    """0 for the start of the warm-up."""
    stop_s: Annotated[float | None, InFile("when it leaves, counted the same way", duration_of(zero=False), "stop")] = (
        None
    )
    flood: Flood | None = None
    properties: Annotated[
        tuple[tuple[str, str], ...],
        InFile("client properties by librdkafka's names", named_by(parsed_by(str, also_number=True))),
    ] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A request that is repeated during the load."""

    kind: Annotated[ProbeKind, InFile("create-topic: how long a new topic takes to be visible")]
    every_s: Annotated[float, InFile("how often it is asked", duration_of(zero=False), "every")] = 1.0
    timeout_s: Annotated[float, InFile("how long an answer is waited for", duration_of(zero=False), "timeout")] = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """The effect of `--scale` on a scenario."""

    multiplies: Annotated[tuple[Scaled, ...], InFile("what --scale multiplies")]
    laptop: Annotated[float, InFile("the scale that suits a laptop, taken where a broker is started for it", SHARE)] = (
        1.0
    )


NO_SCALING: Final = Scaling(multiplies=())


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioDaemon:
    """The daemons in front of a scenario's cluster, over which its clients are spread in turn."""

    policy: Annotated[
        str,
        InFile(f"the text of a policy file (TOML); {PREFIX} begins a topic's name", text_of(example="[thresholds]")),
    ] = ""
    costs: Annotated[str, InFile("the text of a cost model (JSON)", text_of(example="{...}"), "cost-model")] = ""
    count: Annotated[
        int,
        InFile("how many stand in front of the cluster; clients are spread over them", whole_of(lowest=2, highest=20)),
    ] = 1
    is_fleet: Annotated[bool, InFile("whether these hold every limit together (--fleet)", name="fleet")] = False
    restarts_s: Annotated[
        tuple[float, ...],
        InFile(
            "when the run restarts one after the other, from the end of the warm-up",
            list_of(duration_of(zero=False)),
            "restarts",
        ),
    ] = ()
    options: Annotated[tuple[str, ...], InFile("further arguments of `daemon run`", list_of(LINE))] = ()


NO_DAEMON: Final = ScenarioDaemon()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A load test in a file."""

    name: Annotated[str, InFile("its name, which is in every topic's", NAME)]
    title: Annotated[str, InFile("what it shows, in one line", LINE)]
    source: Annotated[str, InFile("the document whose figure it reproduces", LINE)] = ""
    needs: Annotated[TargetNeed, InFile("any, real-broker (nothing else can do it), or daemon")] = TargetNeed.ANY
    window: Annotated[
        QuotaWindow, InFile("the quota window of what keeps the quotas; Kafka's default is 11 x 1 s", WINDOW)
    ] = DEFAULT_WINDOW
    duration_s: Annotated[float, InFile("how long is measured", duration_of(zero=False), "duration")]
    warmup_s: Annotated[
        float | None, InFile("how long before that, not judged; without it one window", duration_of(), "warmup")
    ] = None
    solo_s: Annotated[
        float, InFile("how long the control entity runs alone first", duration_of(zero=False), "solo")
    ] = 10.0
    control_factor: Annotated[
        float | None,
        InFile("how many times its p99 alone the control's may be; usually 3", whole_of(highest=1000)),
    ] = None
    security: Annotated[Security, InFile("how clients say who they are")] = Security.PLAINTEXT
    topics: Annotated[
        tuple[ScenarioTopic, ...],
        InFile("the topics it makes and removes", list_of(section_of(ScenarioTopic, "a topic"))),
    ] = ()
    quotas: tuple[ScenarioQuota, ...] = ()
    quota_steps: tuple[QuotaStep, ...] = ()
    """The changes of quotas during the load, which the run restores with the quotas."""
    entities: tuple[ScenarioClient, ...]
    probes: Annotated[
        tuple[Probe, ...],
        InFile("what is asked again and again during the load", list_of(section_of(Probe, "a probe"))),
    ] = ()
    variants: Annotated[tuple[Variant, ...], InFile("with the quotas, and for comparison without them")] = (
        Variant.WITH_QUOTAS,
    )
    expect: Annotated[tuple[str, ...], InFile("thresholds of its own, each as for --expect", list_of(LINE))] = ()
    abort_on: Annotated[
        tuple[str, ...], InFile("thresholds that end the run as soon as they are broken", list_of(LINE))
    ] = ()
    restarts: Annotated[
        tuple[PlannedRestart, ...],
        InFile(
            "restarts of its target that somebody makes, and that don't void it",
            list_of(section_of(PlannedRestart, "a restart")),
        ),
    ] = ()
    """Counted from the end of the warm-up."""
    scaling: Annotated[Scaling, InFile("what --scale multiplies", section_of(Scaling, "scale"), "scale")] = NO_SCALING
    daemon: Annotated[
        ScenarioDaemon, InFile("settings of the daemon, where one is started", section_of(ScenarioDaemon, "daemon"))
    ] = NO_DAEMON
    broker_settings: Annotated[
        tuple[tuple[str, str], ...],
        InFile(
            "lines of server.properties, where a broker is started",
            named_by(parsed_by(str, also_number=True)),
            "broker",
        ),
    ] = ()

    @property
    def window_s(self) -> float:
        """The length of the quota window in seconds."""
        return float(self.window.samples * self.window.window_s)

    @property
    def unjudged_s(self) -> float:
        """The warm-up, in seconds."""
        return self.window_s if self.warmup_s is None else self.warmup_s

    @property
    def short_run_s(self) -> float:
        """The measured seconds of a run to compare: two windows at least, which show a rate above its quota."""
        return max(self.solo_s, 2 * self.window_s)

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
