"""Files of rpk cluster quotas."""

import pytest
from tests.support.stores.other_tools import read

from kafka_quotas.commands.other_tools.formats import Tool, tool_text
from kafka_quotas.core.formats.nodes import DocumentError
from kafka_quotas.core.model.entity import Entity

DESCRIBED = """\
quotas:
    - entity:
        - name: foo
          type: client-id
      values:
        - key: consumer_byte_rate
          values: "2000"
        - key: producer_byte_rate
          values: "1000"
    - entity:
        - name: <default>
          type: client-id
      values:
        - key: producer_byte_rate
          values: "1000.5e3"
    - entity:
        - name: foo-
          type: client-id-prefix
      values:
        - key: consumer_byte_rate
          values: "2000"
    - entity:
        - {name: app, type: client-id}
        - {name: bob, type: user}
      values:
        - {key: controller_mutation_rate, values: 0.5}
"""


def test_what_describe_prints_is_read_and_prefixes_are_left_out_by_name() -> None:
    assert read(Tool.RPK, DESCRIBED) == (
        {
            "client-id foo": {"consumer_byte_rate": 2000.0, "producer_byte_rate": 1000.0},
            "default client-id": {"producer_byte_rate": 1000500.0},
            "user bob, client-id app": {"controller_mutation_rate": 0.5},
        },
        [],
        ["file:16: quotas.3: the prefix foo-: Kafka has no quota for prefixes of client-ids"],
    )


def test_json_is_read() -> None:
    text = '{"quotas":[{"entity":[{"name":"a","type":"user"}],"values":[{"key":"producer_byte_rate","values":"1"}]}]}'
    expected = {"user a": {"producer_byte_rate": 1.0}}
    assert read(Tool.RPK, text, "quotas.json")[0] == read(Tool.RPK, text)[0] == expected
    assert read(Tool.RPK, "quotas: []\n") == ({}, [], [])


ENTITY = "quotas:\n- entity: [{name: a, type: user}]\n  values:\n  - "


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            f"{ENTITY}{{key: producer_byte_rate, values: 10MB}}",
            "file:4: quotas.1.values.1: producer_byte_rate: not a num",
        ),
        (f"{ENTITY}{{key: producer_byte_rate, values: '-1'}}", "file:2: quotas.1: producer_byte_rate must be"),
        (f"{ENTITY}{{key: rate, values: '1'}}", "file:2: quotas.1: unknown quota key: 'rate'"),
        (f"{ENTITY}{{key: rate, value: '1'}}", "quotas.1.values.1: values is missing"),
        (ENTITY.replace("user", "group") + "{key: producer_byte_rate, values: 1}", "an entity of group"),
        (ENTITY.replace("}]", "}, {name: b, type: user}]") + "{key: a, values: 1}", "an entity of user, user"),
        (ENTITY.replace("name: a", "name: ''") + "{key: producer_byte_rate, values: 1}", "name is empty"),
        ("quotas: 5", "5 is not a list"),
        ("quotas: &a [*a]", "anchors and aliases are not taken"),
    ],
)
def test_what_is_wrong_is_refused_with_its_line(text: str, message: str) -> None:
    try:
        _, problems, _ = read(Tool.RPK, text)
    except DocumentError as error:
        problems = [error.message]
    assert message in problems[0]


@pytest.mark.parametrize(
    ("entity", "quotas", "reason"),
    [
        (Entity.of(ip="10.0.0.1"), {"connection_creation_rate": 1.0}, "Redpanda has no quotas for addresses"),
        (Entity.of(user="a"), {"request_percentage": 1.0}, "Redpanda has no request_percentage"),
        (
            Entity.of(user=None),
            {"producer_byte_rate": 1.0},
            "rpk cluster quotas import would take <default> for a name",
        ),
        (Entity.of(client_id="<default>"), {"producer_byte_rate": 1.0}, "import would take <default> for a name"),
    ],
)
def test_what_rpk_cannot_express_is_refused(entity: Entity, quotas: dict[str, float], reason: str) -> None:
    with pytest.raises(DocumentError, match=reason):
        tool_text({entity: quotas}, Tool.RPK)


def test_what_is_written_looks_as_describe_prints_it() -> None:
    text = tool_text({Entity.of(client_id="foo"): {"producer_byte_rate": 1000.0}}, Tool.RPK)
    assert text == (
        'quotas:\n  - entity:\n      - name: "foo"\n        type: client-id\n'
        '    values:\n      - key: producer_byte_rate\n        values: "1000"\n'
    )
    assert tool_text({}, Tool.RPK) == "quotas: []\n"
