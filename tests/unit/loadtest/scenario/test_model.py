"""Scenario files: what they become, what is refused and on which line, and the schema that says the same."""

import json
import math
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.formats.nodes import DocumentError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.loadtest.plan.workload import (
    ClientKind,
    MutationFlood,
    MutationKind,
    RateKind,
    RequestFlood,
    Workload,
)
from kafka_quotas.loadtest.scenario.model import (
    Scenario,
    Security,
    TargetNeed,
    Variant,
    parse_scenario,
    read_scenario,
    scenario_json_schema,
    shipped_names,
)

HEAD = "schema: kafka-quotas.scenario/1\nname: mine\ntitle: it shows something\nduration: 5s\n"
CLIENT = "entities:\n- {client-id: a, does: produce, topic: t}\n"
WHOLE = (
    HEAD.replace("5s", "30s")
    + """
source: KIP-0
needs: real-broker
window: {samples: 3, seconds: 1}
warmup: 2s
solo: 4s
security: sasl-plain
topics: [{name: t, partitions: 2, replication-factor: 1, fill: 10, record-size: 2KiB}]
quotas:
  - {entity: {user: "u-{n}"}, set: {producer_byte_rate: 1MB/s}, count: 2}
  - {entity: {client-id: null}, set: {request_percentage: 12.5, controller_mutation_rate: 5/s}}
entities:
  - {client-id: "c-{n}", user: "u-{n}", count: 2, does: produce, topic: t, rate: 2x-quota, batch: 64KiB, acks: 1}
  - {client-id: null, user: u-1, does: requests, client: raw, honor-throttle: false, rate: 10req/s,
     expected-errors: [POLICY_VIOLATION],
     request: {api: Fetch, max-wait: 0ms, unauthorised: true}}
  - {client-id: m, user: u-1, does: mutate, client: raw, start: 1s, stop: 9s, quota: unlimited,
     mutation: {kind: create, topics: 50, partitions: 4, total: 500, retry-quota-violation: false}}
probes: [{kind: create-topic, every: 2s}]
variants: [with-quotas, without-quotas]
expect: ["c-1.p99 < 5s"]
scale: {multiplies: [topics, rate], laptop: 0.25}
daemon: {policy: "internal_principals = []", cost-model: "{}", options: [--no-event-log]}
broker: {auto.create.topics.enable: false}
"""
)


def scenario(text: str) -> Scenario:
    return parse_scenario(text, "f.yaml")


def test_a_short_scenario_has_defaults() -> None:
    found = scenario(HEAD + CLIENT)

    assert (found.needs, found.security, found.variants) == (
        TargetNeed.ANY,
        Security.PLAINTEXT,
        (Variant.WITH_QUOTAS,),
    )
    assert (found.unjudged_s, found.clients, found.mutates) == (11.0, 1, False)
    assert found.entities[0].client is ClientKind.LIBRDKAFKA


def test_a_whole_scenario_is_read_to_the_letter() -> None:
    found = scenario(WHOLE)
    producer, asker, mutator = found.entities

    assert [quota.entity for quota in found.quotas] == [
        Entity.of(user="u-1"),
        Entity.of(user="u-2"),
        Entity.of(client_id=None),
    ]
    assert found.quotas[2].values == (("request_percentage", 12.5), ("controller_mutation_rate", 5.0))
    assert (producer.rate.kind, producer.batch_bytes, producer.acks) == (RateKind.QUOTA_MULTIPLE, 65_536, "1")
    assert (asker.client_id, asker.honor_throttle) == (None, False)
    assert asker.expected_errors == ("POLICY_VIOLATION",)
    assert (found.daemon.costs, found.daemon.options) == ("{}", ("--no-event-log",))
    assert asker.flood == RequestFlood(api="Fetch", max_wait_ms=0, unauthorised=True)
    assert mutator.flood == MutationFlood(
        kind=MutationKind.CREATE,
        topics_per_request=50,
        partitions_per_topic=4,
        total_topics=500,
        retry_quota_violation=False,
    )
    assert (mutator.start_s, mutator.stop_s, mutator.judge_by) == (1.0, 9.0, math.inf)
    assert (found.window_s, found.unjudged_s, found.clients, found.mutates) == (3.0, 2.0, 4, True)
    assert found.broker_settings == (("auto.create.topics.enable", "false"),)


REFUSED = [
    pytest.param("", "f.yaml is empty", "load-test list", id="empty"),
    pytest.param("a: [1", ":2: not YAML", None, id="no YAML"),
    pytest.param("a: &x 1", "f.yaml:1: anchors", "write it out", id="anchor"),
    pytest.param("a: !!python/name:os 1", "f.yaml:1: tags", None, id="tag"),
    pytest.param("a: 1\na: 2", ":2: 'a' appears twice", None, id="twice"),
    pytest.param(CLIENT, ":1: schema is missing", None, id="no schema"),
    pytest.param(
        HEAD.replace("/1", "/9") + CLIENT,
        ":1: schema: 'kafka-quotas.scenario/9' is not one of kafka-quotas.scenario/1",
        None,
        id="other schema",
    ),
    pytest.param(HEAD.replace("5s", "5") + CLIENT, ":4: duration: not a length of time: '5'", "100ms", id="no unit"),
    pytest.param(HEAD.replace("5s", "0s") + CLIENT, ":4: duration: this must be above 0 s", None, id="no duration"),
    pytest.param(
        HEAD + CLIENT.replace("}", ", dose: produce}"),
        ":6: entities.1.dose: unknown name 'dose'",
        "did you mean does?",
        id="typo",
    ),
    pytest.param(
        HEAD + CLIENT.replace("produce", "eat"),
        ":6: entities.1.does: 'eat' is not one of produce, consume",
        None,
        id="word",
    ),
    pytest.param(HEAD + "entities: []", ":5: entities: this is not a list of 1 or more", None, id="no client"),
    pytest.param(
        HEAD + CLIENT.replace("}", ", rate: 4Mb}"), ":6: entities.1.rate: not a rate: '4Mb'", "4Mb/s", id="bits"
    ),
    pytest.param(
        HEAD + CLIENT.replace("}", ", count: 0}"), ":6: entities.1.count: 0 is out of range", "1 to 1000", id="count"
    ),
    pytest.param(
        HEAD + CLIENT.replace("}", ", control: yes}"),
        ":6: entities.1.control: 'yes' is not true",
        None,
        id="truth",
    ),
    pytest.param(
        HEAD + CLIENT + "quotas:\n- {entity: {user: u}, set: {producer_byterate: 5}}",
        ":8: quotas.1.set: no such name: 'producer_byterate'",
        "did you mean producer_byte_rate?",
        id="key",
    ),
    pytest.param(
        HEAD + CLIENT + "quotas:\n- {entity: {user: u}, set: {producer_byte_rate: -5}}",
        ":8: quotas.1: producer_byte_rate must be greater than 0",
        None,
        id="value",
    ),
    pytest.param(
        HEAD + CLIENT + 'quotas:\n- {entity: {user: "u{n}"}, set: {producer_byte_rate: 5}}',
        ":8: quotas.1: count and {n} belong together",
        None,
        id="number",
    ),
    pytest.param(
        HEAD + CLIENT + "scale: {multiplies: [topics], laptop: 2}",
        ":7: scale.laptop: 2 is not a number",
        None,
        id="share",
    ),
]


@pytest.mark.parametrize(("text", "message", "hint"), REFUSED)
def test_anything_else_is_refused_with_its_line(text: str, message: str, hint: str | None) -> None:
    with pytest.raises(UsageError, match=message) as refused:
        scenario(text)

    assert "\n" not in refused.value.message
    if hint is not None:
        assert hint in (refused.value.hint or "")


def test_a_missing_file_and_an_unknown_name_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*: No such file"):
        read_scenario(str(tmp_path / "none.yaml"))
    with pytest.raises(UsageError, match="no scenario is called 'none'") as refused:
        read_scenario("none")

    assert "load-test list" in (refused.value.hint or "")


def test_a_misspelt_name_is_answered_with_the_scenario() -> None:
    with pytest.raises(UsageError) as refused:
        read_scenario("isolatoin")

    assert refused.value.hint == "did you mean isolation?"


def tree(text: str) -> Any:
    return yaml.safe_load(text)


def test_the_published_schema_is_the_one_we_make() -> None:
    kept = Path(__file__).parents[4] / "examples" / "scenario.schema.json"

    assert json.loads(kept.read_text("utf-8")) == scenario_json_schema()
    jsonschema.Draft202012Validator.check_schema(scenario_json_schema())


@pytest.mark.parametrize("text", [HEAD + CLIENT, WHOLE])
def test_the_schema_takes_what_the_parser_takes(text: str) -> None:
    jsonschema.validate(tree(text), scenario_json_schema())


SHAPES = ["no schema", "other schema", "no unit", "typo", "word", "no client", "count", "truth", "key", "share"]


@pytest.mark.parametrize("text", [case.values[0] for case in REFUSED if case.id in SHAPES])
def test_the_schema_refuses_the_shapes_that_the_parser_refuses(text: str) -> None:
    if "control: yes" in text:
        text = text.replace("yes", '"yes"')  # YAML 1.1, which PyYAML reads, takes the bare word for true
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(tree(text), scenario_json_schema())


def test_names_shipped_are_those_of_the_files() -> None:
    assert shipped_names()
    for name in shipped_names():
        assert read_scenario(name).name == name


@pytest.mark.parametrize("name", shipped_names())
def test_shipped_scenarios_fit_the_schema(name: str) -> None:
    (path,) = Path(str(files("kafka_quotas.loadtest"))).glob(f"scenarios/*/{name}.yaml")
    jsonschema.validate(tree(path.read_text("utf-8")), scenario_json_schema())


def test_workloads_are_the_words_of_the_commands() -> None:
    assert [each.value for each in Workload] == ["produce", "consume", "requests", "mutate", "connect"]


def test_all_faults_of_a_file_are_found_each_with_its_line() -> None:
    text = (
        HEAD.replace("5s", "soon") + "colour: red\nentities:\n- {client-id: a, does: fly}\n- {does: produce, topc: t}\n"
    )
    with pytest.raises(DocumentError) as refused:
        scenario(text)

    assert [each.location.line for each in refused.value.problems] == [4, 5, 7, 8, 8]
    assert refused.value.message.startswith("f.yaml:4: ")
    assert refused.value.message.endswith(" (and 4 more)")


def test_one_fault_is_reported_as_it_is() -> None:
    with pytest.raises(DocumentError) as refused:
        scenario(HEAD + "colour: red\n" + CLIENT)

    assert len(refused.value.problems) == 1
    assert "more" not in refused.value.message
