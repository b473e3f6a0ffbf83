"""The sections of a scenario file: a table of fields each, for parser, JSON schema and documentation.

The JSON schema describes the shape, for editors and pipelines. What it can't express (a topic that is named but not
listed, a rate in multiples of no quota) `load-test validate` reports. **Source:** JSON Schema, draft 2020-12.
"""

from typing import Any, Final

from kafka_quotas.core.changes.validation import our_refusals
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.entity import CLIENT_ID, IP, USER, Entity
from kafka_quotas.core.model.quota_key import QUOTA_KEYS
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.model.units import parse_bytes, parse_quota_value
from kafka_quotas.loadtest.plan.plan import PlannedRestart
from kafka_quotas.loadtest.plan.workload import (
    NO_LOAD,
    Arrival,
    ClientKind,
    Loop,
    MutationFlood,
    MutationKind,
    RequestFlood,
    Stage,
    Workload,
    parse_offered_rate,
    parse_stage_target,
)
from kafka_quotas.loadtest.scenario.fields import (
    Duration,
    Field,
    ListOf,
    Named,
    Parsed,
    Section,
    Share,
    Size,
    Text,
    Truth,
    Whole,
    Word,
)
from kafka_quotas.loadtest.scenario.model import (
    NUMBER,
    PREFIX,
    SCENARIO_SCHEMA,
    Probe,
    ProbeKind,
    QuotaStep,
    Scaled,
    Scaling,
    Scenario,
    ScenarioClient,
    ScenarioQuota,
    ScenarioTopic,
    Security,
    TargetNeed,
    Variant,
)

UNLIMITED: Final = "unlimited"
_NAME: Final = Text(pattern=r"[A-Za-z0-9._-]{1,60}", example="kip13-default")
_TOPIC_NAME: Final = Text(pattern=r"[A-Za-z0-9._{}-]{1,100}", example="orders")
_ERROR: Final = Text(pattern=r"[A-Z_]{1,60}", example="POLICY_VIOLATION")
_LINE: Final = Text(pattern=r"[^\n]+", example="one line of text")


def _words(words: Any) -> Word:
    return Word(words=tuple(word.value for word in words), build=words)


def _quota(entity: tuple[tuple[str, str | None], ...], values: tuple[tuple[str, str], ...], count: int = 1) -> Any:
    """Return the quotas of one entity, or of `count` numbered ones."""
    numbered = any(name is not None and NUMBER in name for _, name in entity)
    if numbered != (count > 1):
        raise UsageError(f"count and {NUMBER} belong together", hint=f"client-id: app-{NUMBER} with count: 10")
    figures = tuple((key, parse_quota_value(QUOTA_KEYS[key], text)) for key, text in values)
    entities = [Entity.from_pairs(_numbered(entity, number)) for number in range(1, count + 1)]
    refusal = our_refusals(entities[0], dict(figures))
    if refusal is not None:
        raise refusal
    return tuple(ScenarioQuota(entity=each, values=figures) for each in entities)


def _step(at_s: float, entity: tuple[tuple[str, str | None], ...], values: tuple[tuple[str, str], ...]) -> QuotaStep:
    """Return the change of the quotas of one entity.

    Raises:
        UsageError: The entity or a value can't be.
    """
    (quota,) = _quota(entity, values)
    return QuotaStep(at_s=at_s, quota=quota)


def _numbered(entity: tuple[tuple[str, str | None], ...], number: int) -> list[tuple[str, str | None]]:
    return [(kind, name if name is None else name.replace(NUMBER, str(number))) for kind, name in entity]


def _entity(quota: str | None = None, **values: Any) -> ScenarioClient:
    flood = values.pop("request", None), values.pop("mutation", None)
    if quota == UNLIMITED:
        values["unlimited"] = True
    elif quota is not None:
        values["judge_by"] = float(parse_bytes(quota))
    if "stages" in values:
        values.setdefault("rate", NO_LOAD)
    return ScenarioClient(flood=flood[0] or flood[1], **values)


def _scenario(schema: str, quotas: tuple[tuple[ScenarioQuota, ...], ...] = (), **values: Any) -> Scenario:
    del schema  # there is one
    daemon = values.pop("daemon", {})
    return Scenario(quotas=tuple(each for several in quotas for each in several), **daemon, **values)


WINDOW: Final = Section(
    what="window",
    fields=(
        Field("samples", Whole(highest=1000), "quota.window.num of what keeps the quotas"),
        Field("seconds", Whole(highest=3600), "quota.window.size.seconds of it", attribute="window_s"),
    ),
    build=QuotaWindow,
)
TOPIC: Final = Section(
    what="a topic",
    fields=(
        Field("name", _TOPIC_NAME, "its name, which gets the run's prefix", required=True),
        Field("partitions", Whole(highest=100_000), "how many partitions it has"),
        Field("replication-factor", Whole(highest=100), "how many replicas each has"),
        Field("fill", Whole(lowest=0), "how many records are in it before the load starts"),
        Field("record-size", Size(), "bytes in each of these records"),
    ),
    build=ScenarioTopic,
)
_QUOTA_ENTITY: Final = Field(
    "entity",
    Named(item=Text(nullable=True, example="alice"), names=(USER, CLIENT_ID, IP)),
    "whom it is for: user, client-id or ip; null is the default entity",
    required=True,
)
_QUOTA_VALUES: Final = Field(
    "set",
    Named(item=Parsed(str, also_number=True), names=tuple(QUOTA_KEYS)),
    "quota keys and their values",
    required=True,
    attribute="values",
)
QUOTA: Final = Section(
    what="a quota",
    fields=(
        _QUOTA_ENTITY,
        _QUOTA_VALUES,
        Field("count", Whole(lowest=2, highest=1000), f"how many entities, numbered from 1 where {NUMBER} stands"),
    ),
    build=_quota,
)
QUOTA_STEP: Final = Section(
    what="a quota step",
    fields=(
        Field("at", Duration(zero=False), "when, counted from the end of the warm-up", required=True, attribute="at_s"),
        _QUOTA_ENTITY,
        _QUOTA_VALUES,
    ),
    build=_step,
)
REQUEST: Final = Section(
    what="request",
    fields=(
        Field("api", Text(pattern=r"[A-Za-z]+", example="Fetch"), "the API by Kafka's name", required=True),
        Field("max-wait", Duration(in_ms=True), "how long a fetch may wait", attribute="max_wait_ms"),
        Field("min-bytes", Whole(lowest=0), "how much a fetch waits for"),
        Field("max-bytes", Whole(), "how much a fetch takes"),
        Field("unauthorised", Truth(), "whether it asks for a topic that the client may not touch"),
    ),
    build=RequestFlood,
)
MUTATION: Final = Section(
    what="mutation",
    fields=(
        Field("kind", _words(MutationKind), "create topics, delete them, or add partitions", required=True),
        Field("topics", Whole(highest=100_000), "topics in one request", attribute="topics_per_request"),
        Field("partitions", Whole(highest=100_000), "partitions of each topic", attribute="partitions_per_topic"),
        Field("replication-factor", Whole(highest=100), "replicas of each partition"),
        Field("total", Whole(highest=1_000_000), "topics in all; without it until the end", attribute="total_topics"),
        Field(
            "api-timeout",
            Duration(in_ms=True, zero=False),
            "how long throttled topics are sent again",
            attribute="api_timeout_ms",
        ),
        Field(
            "retry-quota-violation",
            Truth(),
            "whether throttled topics (error 89) are sent again after their throttle time",
        ),
        Field("validate-only", Truth(), "whether the broker only checks"),
    ),
    build=MutationFlood,
)
STAGE: Final = Section(
    what="a stage",
    fields=(
        Field("duration", Duration(), "how long it takes; 0s jumps", required=True, attribute="duration_s"),
        Field(
            "target", Parsed(parse_stage_target, also_number=True), "the rate at its end, as rate, or 0", required=True
        ),
    ),
    build=Stage,
)
ENTITY: Final = Section(
    what="an entity",
    fields=(
        Field(
            "client-id",
            Text(nullable=True, pattern=r"[^\n/]+", example="app-{n}"),
            "its client-id; null sends none (raw clients only)",
            required=True,
        ),
        Field("user", Text(pattern=r"[^\n/]+", example="alice"), "its user, where the scenario's security has users"),
        Field("count", Whole(highest=1000), f"how many alike, numbered from 1 where {NUMBER} stands"),
        Field("does", _words(Workload), "produce, consume, requests, mutate or connect", required=True),
        Field("topic", _TOPIC_NAME, "the topic it uses, one of those above"),
        Field("rate", Parsed(parse_offered_rate), "what it offers: max, 5MB/s, 200rec/s, 10req/s, 2x-quota"),
        Field("stages", ListOf(STAGE), "how its rate changes, from `rate` (or 0) on, once the warm-up is over"),
        Field(
            "quota",
            Parsed(str, also_number=True),
            "the quota to judge by per broker, or unlimited, instead of what the quotas above resolve to",
        ),
        Field("judged", Truth(), "whether its rate is judged by its quota at all", attribute="is_judged"),
        Field("client", _words(ClientKind), "which library speaks for it"),
        Field("honor-throttle", Truth(), "whether it keeps still when told (raw clients only)"),
        Field("arrival", _words(Arrival), "how arrivals are spread over time"),
        Field("burst", Whole(), "arrivals in one burst", attribute="burst_size"),
        Field("loop", _words(Loop), "open: on a schedule; closed: the next waits for an answer"),
        Field("in-flight", Whole(highest=1000), "requests without an answer at once"),
        Field("connections", Whole(highest=10_000), "connections it has open"),
        Field("record-size", Size(), "bytes in a record"),
        Field("batch", Size(), "bytes in a request at most", attribute="batch_bytes"),
        Field("acks", Word(words=("0", "1", "all")), "who confirms a record"),
        Field("compression", Word(words=("none", "gzip", "snappy", "lz4", "zstd")), "how batches are compressed"),
        Field("group", _NAME, "the consumer group it is a member of"),
        Field("control", Truth(), "whether it is to stay unharmed, judged against a run of its own made first"),
        Field("start", Duration(), "when it joins, counted from the end of the warm-up", attribute="start_s"),
        Field("stop", Duration(zero=False), "when it leaves, counted the same way", attribute="stop_s"),
        Field("request", REQUEST, "what one request of its flood is"),
        Field("mutation", MUTATION, "what one request of its topic changes is"),
        Field("expected-errors", ListOf(_ERROR), "errors that belong to what is shown, by Kafka's names"),
        Field("properties", Named(item=Parsed(str, also_number=True)), "client properties by librdkafka's names"),
    ),
    build=_entity,
)
RESTART: Final = Section(
    what="a restart",
    fields=(
        Field("server", Text(pattern=r"[^\s]+", example="1"), "the id of a broker, or HOST:PORT", required=True),
        Field(
            "at",
            Duration(),
            "when it goes at the earliest, from the end of the warm-up",
            required=True,
            attribute="at_s",
        ),
        Field(
            "within", Duration(zero=False), "how long after that it answers again", required=True, attribute="within_s"
        ),
    ),
    build=PlannedRestart,
)
PROBE: Final = Section(
    what="a probe",
    fields=(
        Field("kind", _words(ProbeKind), "create-topic: how long a new topic takes to be visible", required=True),
        Field("every", Duration(zero=False), "how often it is asked", attribute="every_s"),
        Field("timeout", Duration(zero=False), "how long an answer is waited for", attribute="timeout_s"),
    ),
    build=Probe,
)
SCALE: Final = Section(
    what="scale",
    fields=(
        Field("multiplies", ListOf(_words(Scaled)), "what --scale multiplies", required=True),
        Field("laptop", Share(), "the scale that suits a laptop, taken where a broker is started for it"),
    ),
    build=Scaling,
)
DAEMON: Final = Section(
    what="daemon",
    fields=(
        Field(
            "policy",
            Text(example="[thresholds]"),
            f"the text of a policy file (TOML); {PREFIX} begins a topic's name",
            attribute="daemon_policy",
        ),
        Field("cost-model", Text(example="{...}"), "the text of a cost model (JSON)", attribute="daemon_costs"),
        Field(
            "count",
            Whole(lowest=2, highest=20),
            "how many stand in front of the cluster; clients are spread over them",
            attribute="daemon_count",
        ),
        Field("fleet", Truth(), "whether these hold every limit together (--fleet)", attribute="is_fleet"),
        Field(
            "restarts",
            ListOf(Duration(zero=False)),
            "when the run restarts one after the other, from the end of the warm-up",
            attribute="daemon_restarts_s",
        ),
        Field("options", ListOf(_LINE), "further arguments of `daemon run`", attribute="daemon_options"),
    ),
    build=dict,
)
SCENARIO: Final = Section(
    what="a scenario",
    fields=(
        Field("schema", Word(words=(SCENARIO_SCHEMA,)), "the version of this format", required=True),
        Field("name", _NAME, "its name, which is in every topic's", required=True),
        Field("title", _LINE, "what it shows, in one line", required=True),
        Field("source", _LINE, "the document whose figure it reproduces"),
        Field("needs", _words(TargetNeed), "any, real-broker (nothing else can do it), or daemon"),
        Field("window", WINDOW, "the quota window of what keeps the quotas; Kafka's default is 11 x 1 s"),
        Field("duration", Duration(zero=False), "how long is measured", required=True, attribute="duration_s"),
        Field("warmup", Duration(), "how long before that, not judged; without it one window", attribute="warmup_s"),
        Field("solo", Duration(zero=False), "how long the control entity runs alone first", attribute="solo_s"),
        Field("control-factor", Whole(highest=1000), "how many times its p99 alone the control's may be; usually 3"),
        Field("security", _words(Security), "how clients say who they are"),
        Field("topics", ListOf(TOPIC), "the topics it makes and removes"),
        Field("quotas", ListOf(QUOTA), "the quotas it sets and puts back"),
        Field("quota-steps", ListOf(QUOTA_STEP), "quotas that it changes during the load, and puts back"),
        Field("entities", ListOf(ENTITY), "the clients", required=True),
        Field("probes", ListOf(PROBE), "what is asked again and again during the load"),
        Field("variants", ListOf(_words(Variant)), "with the quotas, and for comparison without them"),
        Field("expect", ListOf(_LINE), "thresholds of its own, each as for --expect"),
        Field("abort-on", ListOf(_LINE), "thresholds that end the run as soon as they are broken, as for --abort-on"),
        Field("restarts", ListOf(RESTART), "restarts of its target that somebody makes, and that don't void it"),
        Field("scale", SCALE, "what --scale multiplies", attribute="scaling"),
        Field("daemon", DAEMON, "settings of the daemon, where one is started"),
        Field(
            "broker",
            Named(item=Parsed(str, also_number=True)),
            "lines of server.properties, where a broker is started",
            attribute="broker_settings",
        ),
    ),
    build=_scenario,
)


def scenario_json_schema() -> dict[str, Any]:
    """Return the JSON schema of scenario files, as a JSON document."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": SCENARIO_SCHEMA,
        "description": "A load test: its clients, its quotas, and what is to come out.",
        **SCENARIO.schema(),
    }
