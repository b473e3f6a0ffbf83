"""Typed documents: records filled from files, and every fault with its file, line and path."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, ClassVar

import pytest

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.formats.nodes import DocumentError, Node, SourceLocation, json_node, toml_node
from kafka_quotas.core.formats.typed_document import MOST_PROBLEMS, FieldSpec, filled, read_record, schema_of
from kafka_quotas.stores.files.yaml_reader import yaml_node


class Kind(StrEnum):
    FAST = "fast"
    SLOW = "slow"


def rate(text: str) -> float:
    if not text.endswith("/s"):
        raise UsageError(f"not a rate: {text!r}")
    return float(text.removesuffix("/s"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    target: Annotated[float, FieldSpec(rate, takes=str, example="5/s")]
    duration_s: Annotated[float | None, FieldSpec(name="duration")] = 1.0
    kind: Kind = Kind.FAST
    location: SourceLocation


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    title: str
    stages: tuple[Stage, ...] = ()
    labels: Mapping[str, str | int | None] = field(default_factory=dict)
    more: Mapping[str, object] | None = None
    judged: bool = True

    def __post_init__(self) -> None:
        if not self.title:
            raise UsageError("the title is empty", hint="give it one")


TOML = """\
title = "a"
judged = false

[[stages]]
target = "5/s"
duration = 2

[[stages]]
target = "7/s"
kind = "slow"

[labels]
x = "y"
n = 3
[more]
deep = [1, {a = 2.5}]
"""
YAML = """\
title: a
judged: false
stages:
  - {target: 5/s, duration: 2}
  - target: 7/s
    duration: null
    kind: slow
labels: {x: y, n: 3, none: ~}
more: {deep: [1, {a: 2.5}], word: no}
"""
JSON = '{"title": "a", "stages": [{"target": "5/s", "duration": 2}], "labels": {"n": null}}'


def test_a_file_of_any_format_fills_the_record() -> None:
    toml = read_record(Load, toml_node(TOML, "f.toml"))
    assert (toml.title, toml.judged, toml.labels) == ("a", False, {"x": "y", "n": 3})
    assert [(each.target, each.duration_s, each.kind) for each in toml.stages] == [
        (5.0, 2.0, Kind.FAST),
        (7.0, 1.0, Kind.SLOW),
    ]
    assert [str(each.location) for each in toml.stages] == ["f.toml:4: stages.1", "f.toml:8: stages.2"]
    assert toml.more == {"deep": [1, {"a": 2.5}]}
    yaml = read_record(Load, yaml_node(YAML, "f.yaml"))
    assert [(each.target, each.duration_s) for each in yaml.stages] == [(5.0, 2.0), (7.0, None)]
    assert [str(each.location) for each in yaml.stages] == ["f.yaml:4: stages.1", "f.yaml:5: stages.2"]
    assert yaml.labels == {"x": "y", "n": "3", "none": None}  # a type that takes a text takes a word as it is
    assert yaml.more == {"deep": [1, {"a": 2.5}], "word": "no"}
    json = read_record(Load, json_node(JSON, "f.json"))
    assert [str(each.location) for each in json.stages] == ["f.json: stages.1"]
    assert json.labels == {"n": None}


FAULTS = """\
title: []
stages:
  - {targt: 5/s}
  - target: 6
    duration: soon
    kind: quick
labels:
  a: 1
  b: [2]
judged: 1
"""


def test_all_faults_are_reported_at_once_with_line_and_path() -> None:
    with pytest.raises(DocumentError) as caught:
        read_record(Load, yaml_node(FAULTS, "f.yaml"))
    assert [(part.message, part.hint) for part in caught.value.parts] == [
        ("f.yaml:1: title: a list is not a text", None),
        ("f.yaml:3: stages.1: target is missing", "for example 5/s"),
        ("f.yaml:3: stages.1.targt: unknown name 'targt'", "did you mean target?"),
        ("f.yaml:4: stages.2.target: not a rate: '6'", "for example 5/s"),
        ("f.yaml:5: stages.2.duration: 'soon' is not a number", None),
        ("f.yaml:6: stages.2.kind: 'quick' is not one of fast, slow", None),
        ("f.yaml:9: labels.b: a list is not a text or a whole number", None),
        ("f.yaml:10: judged: 1 is not true or false", None),
    ]
    assert caught.value.message == "f.yaml:1: title: a list is not a text (and 7 more)"


def test_a_record_checks_itself() -> None:
    with pytest.raises(DocumentError) as caught:
        read_record(Load, toml_node('title = ""', "f.toml"))
    assert (caught.value.message, caught.value.hint) == ("f.toml: the title is empty", "give it one")


def test_good_items_of_a_list_remain_and_too_many_faults_end_it() -> None:
    node = Node({"title": "a", "stages": [{"target": "1/s"}, {}, *[{"x": 1}] * 2 * MOST_PROBLEMS]}, "f")
    load, problems = filled(Load, node)
    assert load is not None
    assert [stage.target for stage in load.stages] == [1.0]
    assert MOST_PROBLEMS <= len(problems) <= MOST_PROBLEMS + 2
    assert len(DocumentError(*problems).parts) == 21


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "f.json:1: not JSON: Expecting property name enclosed in double quotes"),
        ('{"a": 1, "a": 2}', "f.json: 'a' appears twice"),
        ("[" * 200 + "]" * 200, "f.json: nested too deep"),
        (f"[{'9' * 5000}]", "f.json: a number has too many digits"),
    ],
)
def test_what_is_not_json_is_one_problem(text: str, message: str) -> None:
    with pytest.raises(DocumentError) as caught:
        json_node(text, "f.json")
    assert caught.value.message == message


def test_tables_in_arrays_of_tables_have_lines() -> None:
    node = toml_node("[[a]]\nx = 1\n[a.b]\ny = 2\n[[a]]\n[a.b]\ny = 3\n", "f.toml")
    places = [item.part("b.y") for item in node.at("a").items]
    assert [str(each.location) for each in places if each is not None] == ["f.toml:4: a.1.b.y", "f.toml:7: a.2.b.y"]
    assert node.part("a.b") is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashed:
    dashed_names: ClassVar = True
    batch_bytes: Annotated[int, FieldSpec(about="bytes", schema={"minimum": 1}, required=True)] = 5
    kinds: tuple[Kind, ...] = ()
    names: Mapping[str, str | None] = field(default_factory=dict)
    inner: "Inner | None" = None
    own: Annotated[int, FieldSpec(name="")] = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    word: object = None


SCHEMA = {
    "type": "object",
    "properties": {
        "batch-bytes": {"type": "integer", "minimum": 1, "description": "bytes"},
        "kinds": {"type": "array", "items": {"enum": ["fast", "slow"]}},
        "names": {"type": "object", "additionalProperties": {"type": ["null", "string"]}},
        "inner": {
            "anyOf": [
                {"type": "null"},
                {"type": "object", "properties": {"word": {}}, "required": [], "additionalProperties": False},
            ]
        },
    },
    "required": ["batch-bytes"],
    "additionalProperties": False,
}


def test_a_record_has_the_schema_of_its_files() -> None:
    assert schema_of(Dashed) == SCHEMA
    assert read_record(Dashed, json_node('{"batch-bytes": 7}', "f.json")).batch_bytes == 7


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "f.yaml:1: batch-bytes is missing"),
        ("{batch-bytes: 1, own: 4}", "f.yaml:1: own: unknown name 'own'"),
        ("{batch_bytes: 1}", "f.yaml:1: batch-bytes is missing (and 1 more)"),
    ],
)
def test_a_field_may_be_required_or_in_no_file(text: str, message: str) -> None:
    with pytest.raises(DocumentError) as caught:
        read_record(Dashed, yaml_node(text, "f.yaml"))
    assert caught.value.message == message


def test_a_text_is_not_null() -> None:
    with pytest.raises(DocumentError, match="null is not a text"):
        read_record(Load, yaml_node("title: null", "f.yaml"))
