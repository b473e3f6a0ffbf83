"""The model of a scenario: a load test in a file, with its needs, settings and expected results.

Contract: pure values as the file has them, with counts not expanded and nothing scaled. Rates, and quotas to judge by,
become figures only when the quotas in force are known (`scenario_plan`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Final

from kafka_quotas.core.changes.validation import our_refusals
from kafka_quotas.core.errors import UsageError, near_hint
from kafka_quotas.core.formats.documents import read_text
from kafka_quotas.core.formats.nodes import DocumentError
from kafka_quotas.core.formats.typed_document import FieldSpec, filled, schema_of
from kafka_quotas.core.model.entity import CLIENT_ID, IP, USER, Entity
from kafka_quotas.core.model.quota_key import QUOTA_KEYS
from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, QuotaWindow
from kafka_quotas.core.model.value_format import parse_bytes, parse_quota_value
from kafka_quotas.loadtest.plan.document import (
    NOT_IN_FILE,
    InScenario,
    duration,
    named,
    parsed,
    share,
    size,
    some,
    text,
    whole,
    word,
)
from kafka_quotas.loadtest.plan.plan import NAME, ClientSettings, PlannedRestart
from kafka_quotas.loadtest.plan.workload import (
    AS_FAST_AS_POSSIBLE,
    NO_LOAD,
    Flood,
    MutationFlood,
    OfferedRate,
    RequestFlood,
    Stage,
    Workload,
    parse_offered_rate,
)
from kafka_quotas.stores.store import QuotaEntry

SCENARIO_SCHEMA: Final = "kafka-quotas.scenario/1"
PREFIX: Final = "{prefix}"
NUMBER: Final = "{n}"
"""The placeholder in a client-id, user or topic for the number of each of `count` clients, from 1."""
UNLIMITED: Final = "unlimited"
_TOPIC: Final = r"[A-Za-z0-9._{}-]{1,100}"
_LINE: Final = r"[^\n]+"
_PRINCIPAL: Final = r"[^\n/]+"
_Line = Annotated[str, text("", _LINE, "one line of text")]


@dataclass(frozen=True, slots=True, kw_only=True)
class _WindowSection(InScenario):
    samples: Annotated[int, whole("quota.window.num of what keeps the quotas", most=1000)] = DEFAULT_WINDOW.samples
    seconds: Annotated[int, whole("quota.window.size.seconds of it", most=3600)] = DEFAULT_WINDOW.window_s

    def window(self) -> QuotaWindow:
        return QuotaWindow(samples=self.samples, window_s=self.seconds)


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
class ScenarioTopic(InScenario):
    """A topic of a scenario, which the run creates under its prefix, and removes."""

    name: Annotated[str, text("its name, which gets the run's prefix", _TOPIC, "orders")]
    partitions: Annotated[int, whole("how many partitions it has", most=100_000)] = 1
    replication_factor: Annotated[int, whole("how many replicas each has", most=100)] = 1
    fill: Annotated[int, whole("how many records are in it before the load starts", least=0)] = 0
    record_size: Annotated[int, size(about="bytes in each of these records")] = 1024
    is_there: Annotated[
        bool,
        FieldSpec(about="whether it is in the cluster by its own name already, and stays as it is", name="existing"),
    ] = False


def _entity(names: Sequence[tuple[str, str | None]]) -> Entity:
    if any(name == "" for _, name in names):
        raise UsageError("a name is empty", hint="null is the default entity")
    return Entity.from_pairs(names)


def _values(texts: Sequence[tuple[str, str]]) -> tuple[tuple[str, float], ...]:
    return tuple((key, parse_quota_value(QUOTA_KEYS[key], value)) for key, value in texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioQuota(InScenario):
    """Quotas of one entity, or of `count` alike, that the run sets before the load and restores after it."""

    entity: Annotated[
        Entity,
        named(
            "whom it is for: user, client-id or ip; null is the default entity",
            (USER, CLIENT_ID, IP),
            item=Annotated[str | None, FieldSpec(schema={"minLength": 1})],
            read=_entity,
        ),
    ]
    values: Annotated[
        tuple[tuple[str, float], ...], named("quota keys and their values", tuple(QUOTA_KEYS), read=_values, name="set")
    ]
    """Key names with values, in the units of the keys."""
    count: Annotated[int, whole(f"how many entities, numbered from 1 where {NUMBER} stands", least=2, most=1000)] = 1

    def __post_init__(self) -> None:
        if any(NUMBER in (name or "") for _, name in self.entity.parts) != (self.count > 1):
            raise UsageError(f"count and {NUMBER} belong together", hint=f"client-id: app-{NUMBER} with count: 10")
        refusal = our_refusals(self.entity, dict(self.values))
        if refusal is not None:
            raise refusal

    @property
    def entry(self) -> QuotaEntry:
        """The quotas as a store has them."""
        return QuotaEntry(self.entity, dict(self.values))

    def each(self) -> "tuple[ScenarioQuota, ...]":
        """Return the quotas of each entity by itself."""
        numbers, parts = map(str, range(1, self.count + 1)), self.entity.parts
        numbered = ([(kind, name and name.replace(NUMBER, number)) for kind, name in parts] for number in numbers)
        return tuple(replace(self, entity=Entity.from_pairs(each), count=1) for each in numbered)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaStep(ScenarioQuota):
    """A change of one entity's quotas while the load runs."""

    at_s: Annotated[float, duration("when, counted from the end of the warm-up", zero=False, name="at")]
    """When it is made, in seconds of the measured time."""
    count: Annotated[int, NOT_IN_FILE] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioClient(ClientSettings):
    """One client, or `count` alike."""

    client_id: Annotated[str | None, text("its client-id; null sends none (raw clients only)", _PRINCIPAL, "app-{n}")]
    user: Annotated[
        str | None, text("its user, where the scenario's security has users", _PRINCIPAL, "alice", takes=str)
    ] = None
    count: Annotated[int, whole(f"how many alike, numbered from 1 where {NUMBER} stands", most=1000)] = 1
    does: Annotated[Workload, FieldSpec(about="produce, consume, requests, mutate or connect")]
    topic: Annotated[str, text("the topic it uses, one of those above", _TOPIC, "orders")] = ""
    rate: Annotated[
        OfferedRate | None, parsed("what it offers: max, 5MB/s, 200rec/s, 10req/s, 2x-quota", parse_offered_rate)
    ] = None
    """None for `max`, or for 0 with stages."""
    stages: Annotated[
        tuple[Stage, ...], some("how its rate changes, from `rate` (or 0) on, once the warm-up is over")
    ] = ()
    """The changes of its rate in order, from the end of the warm-up or from its later start on."""
    judge_by: Annotated[
        float | None,
        parsed(
            "the quota to judge by per broker, or unlimited, instead of what the quotas above resolve to",
            lambda quota: math.inf if quota == UNLIMITED else float(parse_bytes(quota)),
            name="quota",
        ),
    ] = None
    """The quota to judge by instead of the quotas in force, None for those, and infinite for a client without one."""
    start_s: Annotated[float, duration("when it joins, counted from the end of the warm-up", name="start")] = 0.0
    """0 for the start of the warm-up."""
    stop_s: Annotated[float | None, duration("when it leaves, counted the same way", zero=False, name="stop")] = None
    request: Annotated[RequestFlood | None, FieldSpec(about="what one request of its flood is", takes=RequestFlood)] = (
        None
    )
    mutation: Annotated[
        MutationFlood | None, FieldSpec(about="what one request of its topic changes is", takes=MutationFlood)
    ] = None
    properties: Annotated[tuple[tuple[str, str], ...], named("client properties by librdkafka's names")] = ()

    @property
    def flood(self) -> Flood | None:
        """One request of its flood."""
        return self.request or self.mutation

    @property
    def first_rate(self) -> OfferedRate:
        """The rate that it begins with."""
        return self.rate or (NO_LOAD if self.stages else AS_FAST_AS_POSSIBLE)

    @property
    def rates(self) -> tuple[OfferedRate, ...]:
        """The rate that it begins with, and those that its stages lead to."""
        return (self.first_rate, *(stage.target for stage in self.stages))


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe(InScenario):
    """A request that is repeated during the load."""

    kind: Annotated[ProbeKind, FieldSpec(about="create-topic: how long a new topic takes to be visible")]
    every_s: Annotated[float, duration("how often it is asked", zero=False, name="every")] = 1.0
    timeout_s: Annotated[float, duration("how long an answer is waited for", zero=False, name="timeout")] = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling(InScenario):
    """The effect of `--scale` on a scenario."""

    multiplies: Annotated[tuple[Scaled, ...], some("what --scale multiplies")]
    laptop: Annotated[float, share("the scale that suits a laptop, taken where a broker is started for it")] = 1.0


NO_SCALING: Final = Scaling(multiplies=())


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioDaemon(InScenario):
    """The daemons in front of a scenario's cluster, over which its clients are spread in turn."""

    policy: Annotated[str, FieldSpec(about=f"the text of a policy file (TOML); {PREFIX} begins a topic's name")] = ""
    costs: Annotated[str, FieldSpec(about="the text of a cost model (JSON)", name="cost-model")] = ""
    count: Annotated[
        int, whole("how many stand in front of the cluster; clients are spread over them", least=2, most=20)
    ] = 1
    is_fleet: Annotated[bool, FieldSpec(about="whether these hold every limit together (--fleet)", name="fleet")] = (
        False
    )
    restarts_s: Annotated[
        tuple[Annotated[float, duration("", zero=False)], ...],
        some("when the run restarts one after the other, from the end of the warm-up", name="restarts"),
    ] = ()
    options: Annotated[tuple[_Line, ...], some("further arguments of `daemon run`")] = ()


NO_DAEMON: Final = ScenarioDaemon()


def _each_quota(quotas: Sequence[ScenarioQuota]) -> tuple[ScenarioQuota, ...]:
    return tuple(chain.from_iterable(quota.each() for quota in quotas))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario(InScenario):
    """A load test in a file."""

    schema: Annotated[str, word("the version of this format", SCENARIO_SCHEMA, required=True)] = SCENARIO_SCHEMA
    name: Annotated[str, text("its name, which is in every topic's", NAME, "kip13-default")]
    title: Annotated[str, text("what it shows, in one line", _LINE, "one line of text")]
    source: Annotated[str, text("the document whose figure it reproduces", _LINE, "one line of text")] = ""
    needs: Annotated[TargetNeed, FieldSpec(about="any, real-broker (nothing else can do it), or daemon")] = (
        TargetNeed.ANY
    )
    window: Annotated[
        QuotaWindow,
        FieldSpec(
            _WindowSection.window,
            takes=_WindowSection,
            about="the quota window of what keeps the quotas; Kafka's default is 11 x 1 s",
        ),
    ] = DEFAULT_WINDOW
    duration_s: Annotated[float, duration("how long is measured", zero=False, name="duration")]
    warmup_s: Annotated[
        float | None, duration("how long before that, not judged; without it one window", name="warmup")
    ] = None
    solo_s: Annotated[float, duration("how long the control entity runs alone first", zero=False, name="solo")] = 10.0
    control_factor: Annotated[
        float | None, whole("how many times its p99 alone the control's may be; usually 3", most=1000)
    ] = None
    security: Annotated[Security, FieldSpec(about="how clients say who they are")] = Security.PLAINTEXT
    topics: Annotated[tuple[ScenarioTopic, ...], some("the topics it makes and removes")] = ()
    quotas: Annotated[tuple[ScenarioQuota, ...], some("the quotas it sets and puts back", _each_quota)] = ()
    quota_steps: Annotated[tuple[QuotaStep, ...], some("quotas that it changes during the load, and puts back")] = ()
    entities: Annotated[tuple[ScenarioClient, ...], some("the clients")]
    probes: Annotated[tuple[Probe, ...], some("what is asked again and again during the load")] = ()
    variants: Annotated[tuple[Variant, ...], some("with the quotas, and for comparison without them")] = (
        Variant.WITH_QUOTAS,
    )
    expect: Annotated[tuple[_Line, ...], some("thresholds of its own, each as for --expect")] = ()
    abort_on: Annotated[tuple[_Line, ...], some("thresholds that end the run as soon as they are broken")] = ()
    restarts: Annotated[
        tuple[PlannedRestart, ...], some("restarts of its target that somebody makes, and that don't void it")
    ] = ()
    """Counted from the end of the warm-up."""
    scaling: Annotated[Scaling, FieldSpec(about="what --scale multiplies", name="scale")] = NO_SCALING
    daemon: Annotated[ScenarioDaemon, FieldSpec(about="settings of the daemon, where one is started")] = NO_DAEMON
    broker_settings: Annotated[
        tuple[tuple[str, str], ...], named("lines of server.properties, where a broker is started", name="broker")
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


_SUFFIX: Final = ".yaml"
_MAX_CHARACTERS: Final = 1_000_000


def read_scenario(name_or_path: str) -> Scenario:
    """Return the scenario in a file, or the one that is shipped under a name.

    A path has a slash or a suffix.

    Raises:
        UsageError: There is no such file or name.
        DocumentError: The text is no scenario, with everything that is wrong in it.
    """
    if "/" in name_or_path or name_or_path.endswith((_SUFFIX, ".yml")):
        try:
            content = read_text(Path(name_or_path))
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8"
            raise UsageError(f"cannot read {name_or_path}: {reason}", hint="it holds a scenario in YAML") from error
        return parse_scenario(content, name_or_path)
    resource = _shipped().get(name_or_path)
    if resource is None:
        raise UsageError(
            f"no scenario is called {name_or_path!r}",
            hint=near_hint(
                name_or_path,
                shipped_names(),
                otherwise="kafka-quotas load-test list shows them; a file of your own is named with its .yaml",
            ),
        )
    return parse_scenario(resource.read_text("utf-8"), name_or_path)


def parse_scenario(content: str, source: str) -> Scenario:
    """Parse a scenario, whose name or file is `source` in messages.

    The YAML is read as a tree in which no value is interpreted yet: there are no aliases, anchors or tags, so that a
    small file can't become a large tree.
    """
    from kafka_quotas.stores.files.yaml_reader import yaml_node  # noqa: PLC0415 - loads PyYAML

    if len(content) > _MAX_CHARACTERS:
        raise UsageError(f"{source} is too large for a scenario", hint=f"the most is {_MAX_CHARACTERS} characters")
    node = yaml_node(content, source)
    if node.value is None:
        raise UsageError(f"{source} is empty", hint="kafka-quotas load-test list shows those that are shipped")
    scenario, problems = filled(Scenario, node)
    if scenario is None or problems:
        raise DocumentError(*sorted(problems, key=lambda each: each.location.line or 0))
    return scenario


def scenario_json_schema() -> dict[str, Any]:
    """Return the JSON schema of scenario files, which describes their shape for editors and pipelines.

    What it can't express (a topic that is named but not listed, a rate in multiples of no quota) `load-test validate`
    reports.
    """
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": SCENARIO_SCHEMA,
        "description": "A load test: its clients, its quotas, and what is to come out.",
        **schema_of(Scenario),
    }


class Question(StrEnum):
    """A question that a first scenario answers."""

    HOLDS = "holds"
    """Does every client get its quota?"""
    HURTS = "hurts"
    """Is a quiet client harmed by greedy ones?"""
    TAKES = "takes"
    """How much does the target take?"""


def question_text(question: Question) -> str:
    """Return the commented file of a scenario that answers a question and runs as it is."""
    folder = files("kafka_quotas.loadtest.scenario") / "questions"
    return (folder / f"{question.value}{_SUFFIX}").read_text("utf-8")


def shipped_names() -> tuple[str, ...]:
    """Return the names of the shipped scenarios, sorted."""
    return tuple(sorted(_shipped()))


def _shipped() -> dict[str, Traversable]:
    folders = (files("kafka_quotas.loadtest") / "scenarios").iterdir()
    found = (each for folder in folders if folder.is_dir() for each in folder.iterdir())
    return {each.name.removesuffix(_SUFFIX): each for each in found if each.name.endswith(_SUFFIX)}
