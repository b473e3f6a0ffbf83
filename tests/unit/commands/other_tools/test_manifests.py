"""Manifests of Strimzi and Jikkou."""

import json
import time

import pytest
import yaml
from tests.support.stores.other_tools import read

from kafka_quotas.commands.other_tools.formats import Tool, tool_text
from kafka_quotas.core.formats.nodes import DocumentError
from kafka_quotas.core.model.entity import Entity

STRIMZI = """\
apiVersion: kafka.strimzi.io/v1beta2
kind: Kafka
metadata:
  name: my-cluster
spec:
  kafka:
    listeners:
      - name: external
        configuration:
          brokers: [{broker: 0, annotations: {a.b/c: "d"}}]
    quotas:
      type: kafka
      producerByteRate: 1000000
      requestPercentage: null
      controllerMutationRate: 0.5
---
apiVersion: kafka.strimzi.io/v1
kind: KafkaUser
metadata:
  name: my-user
  labels:
    strimzi.io/cluster: my-cluster
spec:
  authentication:
    type: tls
  authorization:
    type: simple
    acls:
      - resource: {type: topic, name: my-topic, patternType: literal}
        operations: [Read]
  quotas:
    producerByteRate: 1048576
    consumerByteRate: 2097152
    requestPercentage: 55
    controllerMutationRate: 10
---
apiVersion: kafka.strimzi.io/v1
kind: KafkaUser
metadata: {name: scram}
spec:
  authentication: {type: scram-sha-512}
  quotas: {consumerByteRate: 1024}
---
apiVersion: kafka.strimzi.io/v1
kind: KafkaUser
metadata: {name: without}
spec: {authentication: {type: tls}}
---
apiVersion: apps/v1
kind: Deployment
spec:
"""
PLUGIN = """\
apiVersion: kafka.strimzi.io/v1
kind: Kafka
spec:
  kafka:
    quotas:
      type: strimzi
      producerByteRate: 10
      minAvailableBytesPerVolume: 500
"""
JIKKOU = """\
---
apiVersion: 'kafka.jikkou.io/v1'
kind: 'KafkaClientQuota'
metadata: {labels: {}}
spec:
  type: 'CLIENT'
  entity: {clientId: 'my-client'}
  configs:
    requestPercentage: 10
    producerByteRate: 1024
---
apiVersion: kafka.jikkou.io/v1beta2
kind: KafkaClientQuotaList
items:
  - spec: {type: USERS_DEFAULT, configs: {consumerByteRate: 1}}
  - spec: {type: CLIENTS_DEFAULT, entity: {}, configs: {consumerByteRate: 2}}
  - spec: {type: USER_CLIENT, entity: {user: a, clientId: b}, configs: {consumerByteRate: 3}}
  - spec: {type: USER_ALL_CLIENTS, entity: {user: a, clientId: null}, configs: {consumerByteRate: 4}}
  - spec: {type: USER, entity: {user: "007"}, configs: {consumerByteRate: 5}}
---
apiVersion: "kafka.aiven.io/v1beta1"
kind: "KafkaQuota"
spec:
  user: "default"
  clientId: "default"
  consumerByteRate: 1048576
"""


def test_users_and_defaults_of_strimzi_are_read() -> None:
    rows, problems, left_out = read(Tool.STRIMZI, STRIMZI)
    assert rows == {
        "default user": {"producer_byte_rate": 1e6, "controller_mutation_rate": 0.5},
        "user CN=my-user": {
            "producer_byte_rate": 1048576.0,
            "consumer_byte_rate": 2097152.0,
            "request_percentage": 55.0,
            "controller_mutation_rate": 10.0,
        },
        "user scram": {"consumer_byte_rate": 1024.0},
    }
    assert (problems, left_out) == ([], [])


def test_a_list_as_kubectl_prints_it_is_read() -> None:
    items = [each for each in yaml.safe_load_all(STRIMZI) if each]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    assert read(Tool.STRIMZI, text, "users.json")[0] == read(Tool.STRIMZI, STRIMZI)[0]


def test_the_plugin_of_strimzi_is_left_out_by_name() -> None:
    message = "quotas of the type strimzi (producerByteRate, minAvailableBytesPerVolume), which are not Kafka's own"
    assert read(Tool.STRIMZI, PLUGIN) == ({}, [], [f"file:6: spec.kafka.quotas: {message}"])


def test_every_type_of_jikkou_is_read() -> None:
    rows, problems, _ = read(Tool.JIKKOU, JIKKOU)
    assert problems == []
    assert rows == {
        "client-id my-client": {"request_percentage": 10.0, "producer_byte_rate": 1024.0},
        "default user": {"consumer_byte_rate": 1.0},
        "default client-id": {"consumer_byte_rate": 2.0},
        "user a, client-id b": {"consumer_byte_rate": 3.0},
        "user a, default client-id": {"consumer_byte_rate": 4.0},
        "user 007": {"consumer_byte_rate": 5.0},
        "default user, default client-id": {"consumer_byte_rate": 1048576.0},
    }


USER = "apiVersion: kafka.strimzi.io/v1\nkind: KafkaUser\nmetadata: {name: a}\nspec:\n  quotas:\n    "
QUOTA = "apiVersion: kafka.jikkou.io/v1\nkind: KafkaClientQuota\nspec:\n  "


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{USER}producerByteRate: 10Mi", "file:6: spec.quotas.producerByteRate: not a number: '10Mi'"),
        (f"{USER}producerByteRate: true", "file:6: spec.quotas.producerByteRate: not a number: True"),
        (f"{USER}producerByteRate: {{{{ .Values.rate }}}}", "file:6: a name is not a plain text"),
        (f"{USER}producerByteRate: [1]", "file:6: spec.quotas.producerByteRate: not a number: a list"),
        (f"{USER}producerByteRate: 0", "file:6: spec.quotas: producer_byte_rate must be"),
        (f"{USER}producerRate: 1", "file:6: spec.quotas.producerRate: unknown quota"),
        (f"{USER}producerByteRate: 1\n    producerByteRate: 2", "file:7: 'producerByteRate' appears twice"),
        (f"{USER}<<: *a", "file:6: merge keys (<<) are not taken"),
        (f"{USER}producerByteRate: &a 1", "file:6: anchors and aliases are not taken"),
        (f"{USER}producerByteRate: !!int 1", "file:6: tags are not taken"),
        (USER.replace("name: a", "x: a") + "producerByteRate: 1", "file:1: metadata.name is missing"),
        (f"{USER}producerByteRate: 1\n---\n{USER}producerByteRate: 1", "user a appears twice, also at file:6"),
        ("apiVersion: kafka.strimzi.io/v1\nkind: KafkaUser\nmetadata: {name: a}\nspec: {quotas: 5}", "not a mapping"),
        ("apiVersion: v1\n--- \n- a", "file:3: not a manifest"),
        (f"{QUOTA}type: USERS", "spec.type is USERS"),
        (f"{QUOTA}type: USER\n  configs: {{}}", "the type USER takes a name in spec.entity.user"),
        (f"{QUOTA}type: USERS_DEFAULT\n  entity: {{user: a}}", "USERS_DEFAULT takes no name in spec.entity.user"),
        (f"{QUOTA}type: CLIENT\n  entity: {{clientId: a}}\n  configs: {{rate: 1}}", "spec.configs.rate: unknown quota"),
    ],
)
def test_what_is_wrong_is_refused_with_its_line(text: str, message: str) -> None:
    try:
        _, problems, _ = read(Tool.STRIMZI, text)
    except DocumentError as error:
        problems = [error.message]
    assert message in problems[0]


@pytest.mark.parametrize(
    "text",
    [
        "---\n" * 1_000_000,
        "apiVersion: " + "{a: " * 100_000,
        "apiVersion: v1\nkind: List\nitems: " + "[" * 100_000,
        "kind: List\nitems: [" + "{}, " * 1_000_000 + "]",
    ],
)
def test_a_hostile_file_ends_soon(text: str) -> None:
    begin_s = time.process_time()
    with pytest.raises(DocumentError) as raised:
        read(Tool.STRIMZI, text)
    assert time.process_time() - begin_s < 5
    assert len(raised.value.message) < 200


def test_written_manifests_have_the_fields_of_their_kinds() -> None:
    content = {
        Entity.of(user="web"): {"producer_byte_rate": 1024.0, "controller_mutation_rate": 0.5},
        Entity.of(user="CN=tls.user"): {"request_percentage": 50.0},
        Entity.of(user=None): {"consumer_byte_rate": 2.0**40},
    }
    web, tls, cluster = yaml.safe_load_all(tool_text(content, Tool.STRIMZI))
    assert web == {
        "apiVersion": "kafka.strimzi.io/v1",
        "kind": "KafkaUser",
        "metadata": {"name": "web", "labels": {"strimzi.io/cluster": "my-cluster"}},
        "spec": {"quotas": {"producerByteRate": 1024, "controllerMutationRate": 0.5}},
    }
    assert tls["metadata"]["name"] == "tls.user"
    assert tls["spec"] == {"authentication": {"type": "tls-external"}, "quotas": {"requestPercentage": 50}}
    assert cluster["spec"] == {"kafka": {"quotas": {"type": "kafka", "consumerByteRate": 2**40}}}


@pytest.mark.parametrize(
    ("tool", "entity", "quotas", "reason"),
    [
        (Tool.STRIMZI, Entity.of(client_id="a"), {"producer_byte_rate": 1.0}, "Strimzi has quotas of users alone"),
        (Tool.STRIMZI, Entity.of(user="a", client_id=None), {"producer_byte_rate": 1.0}, "quotas of users alone"),
        (Tool.STRIMZI, Entity.of(user="Alice"), {"producer_byte_rate": 1.0}, "Kubernetes takes lower-case letters"),
        (Tool.STRIMZI, Entity.of(user="a" * 254), {"producer_byte_rate": 1.0}, "Kubernetes takes lower-case letters"),
        (Tool.STRIMZI, Entity.of(user="a"), {"request_percentage": 0.5}, "whole numbers up to 2147483647 as request"),
        (Tool.STRIMZI, Entity.of(user=None), {"request_percentage": 2.0**31}, "whole numbers up to 2147483647 as"),
        (Tool.STRIMZI, Entity.of(user="a"), {"consumer_byte_rate": 2.0**31}, "at most 2147483647 as consumerByteRate"),
        (Tool.JIKKOU, Entity.of(ip="10.0.0.1"), {"connection_creation_rate": 1.0}, "Jikkou has no such entity"),
        (Tool.JIKKOU, Entity.of(user=None, client_id="a"), {"producer_byte_rate": 1.0}, "Jikkou has no such entity"),
        (Tool.JIKKOU, Entity.of(user="a"), {"controller_mutation_rate": 1.0}, "Jikkou has no controller_mutation_rate"),
        (Tool.JIKKOU, Entity.of(topic="a"), {"bytes.in.per.sec.threshold": 1.0}, "Kafka has no thresholds"),
        (Tool.JIKKOU, Entity.of(user="a"), {"producer_byte_rate": 0.0}, "producer_byte_rate must be"),
    ],
)
def test_what_a_tool_cannot_express_is_refused(
    tool: Tool, entity: Entity, quotas: dict[str, float], reason: str
) -> None:
    with pytest.raises(DocumentError) as raised:
        tool_text({Entity.of(user="other"): {"producer_byte_rate": 1.0}, entity: quotas}, tool)
    assert [each.location.source for each in raised.value.problems] == [str(entity)]
    assert reason in raised.value.message


def test_one_resource_cannot_be_two_users() -> None:
    content = {Entity.of(user=name): {"producer_byte_rate": 1.0} for name in ("a", "CN=a")}
    with pytest.raises(DocumentError, match="user CN=a: a KafkaUser a can be either a or CN=a"):
        tool_text(content, Tool.STRIMZI)
