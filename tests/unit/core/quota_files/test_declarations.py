"""Files of quotas: what they declare, what values and overlays make of them, and what is wrong with them."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from tests.support.processes.run_cli import run_cli

from kafka_quotas.commands.declarative.reading import declared, read_declarations, read_plan
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.entity import Entity, owner
from kafka_quotas.core.quota_files.declarations import json_schema

PRODUCE, CONSUME, REQUEST, CONNECTIONS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "connection_creation_rate",
)
YAML = """
values: {web: 10MiB}
defaults: {request_percentage: 200, connection_creation_rate: 7}
entries:
  - {entity: {user: alice, client-id: null}, quotas: {producer_byte_rate: $web}}
  - entity: {user-default: true}
    quotas: {consumer_byte_rate: 2M, request_percentage: 50%}
  - {entity: {ip: null}, quotas: {}}
"""
TOML = """
values = {web = "10MiB"}
defaults = {request_percentage = 200, connection_creation_rate = 7}
[[entries]]
entity = {user = "alice", client-id-default = true}
quotas = {producer_byte_rate = "${web}"}
[[entries]]
entity = {user-default = true}
quotas = {consumer_byte_rate = "2M", request_percentage = "50%"}
[[entries]]
entity = {ip-default = true}
quotas = {}
"""
JSON = json.dumps(
    {
        "values": {"web": "10MiB"},
        "defaults": {"request_percentage": 200, "connection_creation_rate": 7},
        "entries": [
            {"entity": {"user": "alice", "client-id": None}, "quotas": {"producer_byte_rate": "$web"}},
            {"entity": {"user": None}, "quotas": {"consumer_byte_rate": "2M", "request_percentage": "50%"}},
            {"entity": {"ip": None}, "quotas": {}},
        ],
    }
)
MEANT = {
    Entity.of(user="alice", client_id=None): {REQUEST: 200.0, PRODUCE: 10485760.0},
    Entity.of(user=None): {REQUEST: 50.0, CONSUME: 2000000.0},
    Entity.of(ip=None): {CONNECTIONS: 7.0},
}


def written(folder: Path, text: str, name: str = "q.yaml") -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return str(path)


def problem_of(folder: Path, text: str, name: str = "q.yaml") -> str:
    """The message of the only problem, the place included."""
    found = read_declarations([written(folder, text, name)])
    assert len(found.problems) == 1, found.problems
    return found.problems[0].as_error().message.removeprefix(f"{folder}/")


@pytest.mark.parametrize(("name", "text"), [("q.yaml", YAML), ("q.toml", TOML), ("q.json", JSON)])
def test_the_three_formats_mean_the_same(tmp_path: Path, name: str, text: str) -> None:
    found = declared([written(tmp_path, text, name)])
    assert found.desired() == MEANT
    assert found.unused_values == ()


def test_a_list_alone_is_a_file_and_a_folder_is_read_with_what_lies_below(tmp_path: Path) -> None:
    written(tmp_path, "- {entity: {user: a}, quotas: {producer_byte_rate: 1}}", "quotas/b.yml")
    written(tmp_path, "- {entity: {user: b}, quotas: {producer_byte_rate: 2}}", "quotas/below/a.yaml")
    written(tmp_path, "- {entity: {user: c}, quotas: {producer_byte_rate: 3}}", "quotas/.hidden/a.yaml")
    written(tmp_path, "not ours", "quotas/README.md")
    assert list(declared([str(tmp_path / "quotas")]).desired()) == [Entity.of(user="a"), Entity.of(user="b")]


def test_overlays_win_key_by_key_and_the_last_one_wins(tmp_path: Path) -> None:
    base = written(tmp_path, YAML)
    prod = Path(written(tmp_path, "values: {web: 50MiB}\ndefaults: {request_percentage: 300}", "prod.yaml"))
    big = Path(
        written(
            tmp_path,
            "- {entity: {user: null}, quotas: {consumer_byte_rate: null}}\n"
            "- {entity: {user: new}, quotas: {producer_byte_rate: 1}}",
            "big.yaml",
        )
    )
    assert declared([base], [prod, big]).desired() == {
        Entity.of(user="alice", client_id=None): {REQUEST: 300.0, PRODUCE: 52428800.0},
        Entity.of(user="new"): {REQUEST: 300.0, PRODUCE: 1.0},
        Entity.of(user=None): {REQUEST: 300.0, CONSUME: None},
        Entity.of(ip=None): {CONNECTIONS: 7.0},
    }


def test_a_value_that_nothing_asks_for_is_told(tmp_path: Path) -> None:
    text = "values: {typo: 1}\nentries: [{entity: {user: a}, quotas: {producer_byte_rate: 1}}]"
    assert read_declarations([written(tmp_path, text)]).unused_values == ("typo",)


ENTRY = "- {entity: {user: a}, quotas: {producer_byte_rate: 1}}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{ENTRY}{ENTRY}", "q.yaml:2: entries.2: user a appears twice, also at "),
        ("- {entity: {user: a, user: b}, quotas: {}}", "q.yaml:1: 'user' appears twice"),
        ("- {entity: {user: a, user-default: true}, quotas: {producer_byte_rate: 1}}", "entity type named twice: user"),
        ("- {entity: {user: 7}, quotas: {producer_byte_rate: 1}}", "the user name is a number, not a text: 7"),
        ("- {entity: {user: true}, quotas: {producer_byte_rate: 1}}", "the user name is true or false, not a text"),
        ("- {entity: {user: [a]}, quotas: {producer_byte_rate: 1}}", "the user name is a list, not a text: ['a']"),
        ("- {entity: {user: }, quotas: {producer_byte_rate: 1}}", "q.yaml:1: a value is left empty"),
        ('- {entity: {user: ""}, quotas: {producer_byte_rate: 1}}', "the user name is empty"),
        ("- {entity: {}, quotas: {producer_byte_rate: 1}}", "no entity is named"),
        ("- {entity: {group: a}, quotas: {producer_byte_rate: 1}}", "unknown entity type: 'group'"),
        ("- {entity: {user: a}, quotas: {producer_byte_rate: 0}}", "producer_byte_rate must be greater than 0"),
        ("- {entity: {user: a}, quotas: {producer_byte_rate: .nan}}", "producer_byte_rate must be a finite number"),
        ('- {entity: {user: a}, quotas: {producer_byte_rate: "NaN"}}', "producer_byte_rate must be a finite number"),
        ("- {entity: {user: a}, quotas: {producer_byte_rate: 1.5}}", "producer_byte_rate cannot be a fractional value"),
        ("- {entity: {user: a}, quotas: {producer_byte_rate: [1]}}", "producer_byte_rate is a list, not a figure: [1]"),
        ("- {entity: {user: a}, quotas: {producer_byte_rate: yes}}", "not a size: 'yes'"),
        ("- {entity: {user: a}, quotas: {producer_byte_rate: true}}", "is true or false, not a figure"),
        (f"- {{entity: {{user: a}}, quotas: {{producer_byte_rate: {'9' * 390}}}}}", "must be a finite number"),
        ("- {entity: {user: a}, quotas: {producer-byte-rate: 1}}", "the key is producer_byte_rate"),
        ("- {entity: {user: a}, quotas: {connection_creation_rate: 1}}", "is a quota of an ip, not of a user"),
        ("- {entity: {ip: 10.0.0.0/8}, quotas: {connection_creation_rate: 1}}", "10.0.0.0/8 is not an address"),
        ("- {entity: {user: a}, quotas: {producer_byte_rate: $web}}", "$web has no value"),
        ("- {entity: {user: a}, quotas: {}}", "no quota is declared of user a"),
        ("- {entity: {user: a}}", "q.yaml:1: entries.1: quotas is missing"),
        ("- {entity: a, quotas: {}}", "q.yaml:1: entries.1.entity: 'a' is not a mapping"),
        (
            "- {entity: {user: a}, quotas: {producer_byte_rate: 1}, invalid: 1}",
            "q.yaml:1: entries.1.invalid: 1 is not true or false",
        ),
        (
            "- {entity: {user: a}, quotas: {producer_byte_rate: 1}, note: x}",
            "q.yaml:1: entries.1.note: unknown name 'note'",
        ),
        ("- a", "q.yaml:1: entries.1: 'a' is not a mapping"),
        ("entires: []", "unknown section: 'entires'"),
        ("entries: 7", "q.yaml:1: entries: 7 is not a list"),
        ("schema: kafka-quotas.quotas/9\nentries: []", "this is 'kafka-quotas.quotas/9', not kafka-quotas.quotas/1"),
        ("just words", "q.yaml: 'just words' is not a mapping"),
        ("entries: b: c", "q.yaml:1: not YAML: mapping values are not allowed in this context"),
        ("- {entity: {user: a}, quotas: {producer_byte_rate: !!python/name:os.system 1}}", "tags are not taken"),
        (f"{ENTRY}---\n{ENTRY}", "q.yaml:2: a second document begins"),
        ("- &a {entity: {user: a}, quotas: {producer_byte_rate: 1}}", "q.yaml:1: anchors and aliases are not taken"),
        ("- {entity: {<<: 1}, quotas: {}}", "merge keys (<<) are not taken"),
    ],
)
def test_what_is_wrong_is_one_line_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    found = problem_of(tmp_path, text)
    assert message in found
    assert "\n" not in found


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("q.json", '[{"entity": {"user": "a", "user": "b"}, "quotas": {}}]', "'user' appears twice"),
        (
            "q.json",
            '[{"entity": {"user": "a"}, "quotas": {"producer_byte_rate": NaN}}]',
            "q.json: entries.1: producer_byte_rate must",
        ),
        ("q.json", "[1,", "q.json:1: not JSON: Expecting value"),
        ("q.json", "7", "q.json: 7 is not a mapping"),
        ("q.toml", "a = 1\na = 2", "not TOML: Cannot overwrite a value"),
        ("q.toml", "entries = 1979-05-27", "q.toml:1: entries: a date or time is not a list"),
        (
            "q.toml",
            "[[entries]]\nentity = {user = 1979-05-27}\nquotas = {}",
            "the user name is a date or time, not a text",
        ),
    ],
)
def test_json_and_toml_have_their_own_mistakes(tmp_path: Path, name: str, text: str, message: str) -> None:
    assert message in problem_of(tmp_path, text, name)


def test_a_file_that_is_not_utf8_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "q.yaml"
    path.write_bytes(b"# fine\n- \xff\n")
    found = read_declarations([str(path)])
    assert [str(problem.location) for problem in found.problems] == [f"{path}:2"]


def test_values_marked_invalid_may_be_anything(tmp_path: Path) -> None:
    text = (
        "- {entity: {user: a}, quotas: {producer_byte_rate: 0, request_percentage: NaN, new_key: -1}, invalid: true}\n"
        '- {entity: {user: ""}, quotas: {producer_byte_rate: 1}, invalid: true}'
    )
    found = read_declarations([written(tmp_path, text)])
    assert found.problems == ()
    assert repr(found.desired()[Entity.of(user="a")]) == repr({PRODUCE: 0.0, REQUEST: float("nan"), "new_key": -1.0})


def test_an_empty_input_a_missing_file_and_an_unknown_format_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no quotas are declared"):
        declared([written(tmp_path, "# nothing\n")])
    with pytest.raises(UsageError, match="cannot read"):
        declared([str(tmp_path / "none.yaml")])
    with pytest.raises(UsageError, match="does not show the format"):
        declared([written(tmp_path, "x", "q.txt")])
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"no \.yaml"):
        declared([str(tmp_path / "empty")])


def test_the_first_of_several_problems_says_how_many_there_are(tmp_path: Path) -> None:
    path = written(tmp_path, "- {entity: {user: 1}, quotas: {}}\n" * 3)
    with pytest.raises(UsageError, match=r":1: entries\.1: the user name is a number.*\(and 2 more\)"):
        declared([path])


def test_a_plan_is_told_from_a_file_of_quotas_and_applied_alone(tmp_path: Path) -> None:
    plan = '{"schema": "kafka-quotas.plan/1", "store": "local:x", "fingerprint": "sha256:0", "changes": []}'
    path = written(tmp_path, plan, "plan.json")
    quotas = written(tmp_path, JSON, "q.json")
    kept = read_plan([path])
    assert kept is not None
    assert kept.store_url == "local:x"
    assert read_plan([quotas]) is None
    with pytest.raises(UsageError, match="applied alone"):
        read_plan([path, quotas])


@pytest.mark.parametrize(
    ("selector", "owned"),
    [
        ("user", ["user a", "user a, client-id c", "default user"]),
        ("user=a", ["user a", "user a, client-id c"]),
        ("client-id=[bc]", ["user a, client-id c"]),
        ("user-default", ["default user"]),
        ("ip=10.*", ["ip 10.0.0.1"]),
    ],
)
def test_selectors_say_which_entities_are_owned(selector: str, owned: list[str]) -> None:
    entities = [
        Entity.of(user="a"), Entity.of(user="a", client_id="c"), Entity.of(user=None), Entity.of(ip="10.0.0.1"),
    ]  # fmt: skip
    owns = owner([selector])
    assert [str(entity) for entity in entities if owns(entity)] == owned
    assert all(owner([])(entity) for entity in entities)


@pytest.mark.parametrize("selector", ["users=a", "user=", "", "team-default", "=a"])
def test_a_selector_that_says_nothing_is_refused(selector: str) -> None:
    with pytest.raises(UsageError, match="not a selector"):
        owner([selector])


SCHEMA_CASES = [
    ({"user": "a"}, {PRODUCE: 1}),
    ({"user": None, "client-id": "b"}, {PRODUCE: "10MiB", CONSUME: None, REQUEST: 0.5}),
    ({"user-default": True}, {REQUEST: "12.5 %"}),
    ({"ip": "10.0.0.1"}, {CONNECTIONS: "unlimited"}),
    ({"user": "a"}, {PRODUCE: "80Mbps"}),
    ({"user": ""}, {PRODUCE: 1}),
    ({}, {PRODUCE: 1}),
    ({"user": 1}, {PRODUCE: 1}),
    ({"group": "a"}, {PRODUCE: 1}),
    ({"user": "a", "ip": "b"}, {PRODUCE: 1}),
    ({"user": "a", "user-default": True}, {PRODUCE: 1}),
    ({"user": "a"}, {PRODUCE: 0}),
    ({"user": "a"}, {PRODUCE: 1.5}),
    ({"user": "a"}, {PRODUCE: "1KB"}),
    ({"user": "a"}, {PRODUCE: "5%"}),
    ({"user": "a"}, {PRODUCE: True}),
    ({"user": "a"}, {"producer_rate": 1}),
]


def test_the_schema_is_one_and_agrees_with_the_reader(tmp_path: Path) -> None:
    schema = json_schema()
    Draft202012Validator.check_schema(schema)
    judge = Draft202012Validator(schema)
    verdicts = []
    for entity, quotas in SCHEMA_CASES:
        document = [{"entity": entity, "quotas": quotas}]
        mine = not read_declarations([written(tmp_path, json.dumps(document), "q.json")]).problems
        verdicts.append(mine)
        assert judge.is_valid(document) is mine, document
    assert any(verdicts)
    assert not all(verdicts)
    assert judge.is_valid(json.loads(JSON))
    assert judge.is_valid([{"entity": {"user": "a"}, "quotas": {PRODUCE: 0, "new": "NaN"}, "invalid": True}])


def test_validate_lists_every_bad_entry_whatever_is_wrong_with_it(tmp_path: Path) -> None:
    lines = [
        "- {entity: {user: a}, quotas: {producer_byte_rat: 10}}",
        "- {entity: {usr: b}, quotas: {producer_byte_rate: 10}}",
        "- {entity: {user: c}, quotas: {producer_byte_rate: 10}, extra: 1}",
        "- word",
        "- {entity: {user: d}, quotas: {producer_byte_rate: 0}}",
        "- {entity: {user: e}, quotas: {producer_byte_rate: 1000000}}",
    ]
    (tmp_path / "q.yaml").write_text("".join(f"{line}\n" for line in lines))
    code, out, err = run_cli("validate", str(tmp_path / "q.yaml"), "--output", "json")
    assert code == 1
    assert {problem["line"] for problem in json.loads(out)["problems"]} == {1, 2, 3, 4, 5}
    assert "5 problems" in err
