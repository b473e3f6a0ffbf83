"""The daemon's policy file: what it may say, and one clear line for what it may not."""

import json
import tomllib
from enum import StrEnum
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

import jsonschema
import pytest

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.formats.typed_document import schema_of
from kafka_quotas.core.groups.group import Group
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_key import ThresholdSettings
from kafka_quotas.enforcement.config.client_policy import (
    MAX_THROTTLE_MS,
    SETTINGS,
    EntityTable,
    FetchOverQuota,
    Mode,
    OnViolation,
    PolicyFile,
    Scope,
    read_policy_file,
)

_NUMBERS = {
    bool: {"type": "boolean"},
    int: {"type": "integer", "minimum": 1, "maximum": MAX_THROTTLE_MS},
    float: {"type": "number", "exclusiveMinimum": 0},
}


def _setting(hint: Any) -> dict[str, Any]:
    metadata = getattr(hint, "__metadata__", ())
    kind = next(each for each in get_args(get_args(hint)[0] if metadata else hint) if each is not NoneType)
    if issubclass(kind, StrEnum):
        return {"enum": [member.value for member in kind]}
    return {"description": metadata[0].about, **_NUMBERS[kind]}


EXAMPLE = Path(__file__).parents[4] / "examples" / "daemon" / "policy.toml"
SCHEMA = json.loads((EXAMPLE.parent / "policy.schema.json").read_text(encoding="utf-8"))
MIB = 1024.0 * 1024.0


@pytest.fixture(autouse=True)
def _folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


A = "[[entity]]\nuser = 'a'\n"
REFUSED = [
    ("entity = 3", ":1: entity: 3 is not a list"),
    ("[entity]\nuser = 'a'", ":1: entity: a mapping is not a list"),
    ("quotas = 1", ":1: quotas: unknown name 'quotas'"),
    ("user = ", ": not TOML: Invalid value (at end of document)"),
    ("[[entity]]\nmode = 'smooth'", ":1: entity.1: it names no user and no client_id"),
    ("[[entity]]\nuser = 'a'", ":1: entity.1: it sets nothing"),
    ("[[entity]]\nuser = ''\nexempt = true", ":2: entity.1.user: a name is empty"),
    ("[[entity]]\nuser = 7\nexempt = true", ":2: entity.1.user: 7 is not a text"),
    (A + "user_default = true\nexempt = true", ":1: entity.1: user and user_default exclude each other"),
    ("[[entity]]\nuser_default = 'yes'\nexempt = true", ":2: entity.1.user_default: 'yes' is not true or false"),
    (A + "speed = 1", ":3: entity.1.speed: unknown name 'speed'"),
    (A + "mode = 'fast'", ":3: entity.1.mode: 'fast' is not one of kafka, smooth, shadow"),
    (A + "scope = 3", ":3: entity.1.scope: 3 is not one of broker, cluster"),
    (A + "request_rate = 0", ":3: entity.1.request_rate: it must be a number above 0, not 0"),
    (A + "request_rate = nan", ":3: entity.1.request_rate: it must be a number above 0, not nan"),
    (A + "request_rate = true", ":3: entity.1.request_rate: True is not a number"),
    (A + "max_throttle_ms = 0.5", ":3: entity.1.max_throttle_ms: 0.5 is not a whole number"),
    (A + "exempt = 1", ":3: entity.1.exempt: 1 is not true or false"),
    (A + "on_violation = 'delay-then-error'", ":1: entity.1: on_violation = 'delay-then-error' needs max_throttle_ms"),
    (A + "exempt = true\n[[entity]]\nuser = 'a'\nmode = 'smooth'", ":1: entity: user a has an [[entity]] already"),
    ("internal_principals = 'broker'", ":1: internal_principals: 'broker' is not a list"),
    ("thresholds = 3", ":1: thresholds: 3 is not a mapping"),
    ("[thresholds]\nall = 3", ":2: thresholds.all: unknown name 'all'"),
    ("[thresholds]\ntotal = 'much'", ":2: thresholds.total: not a size: 'much'"),
    ("[thresholds]\ntotal = 0", ":2: thresholds.total: it must be above 0, not 0"),
    ("[thresholds]\ntotal = []", ":2: thresholds.total: not a size: []"),
    ("[thresholds]\ntopics = 5", ":2: thresholds.topics: 5 is not a mapping"),
    (
        "[thresholds]\ntotal = 10\ntopics = { a = 6, b = 5 }",
        (":1: thresholds: the thresholds of topics would sum to 11 bytes/s, more than the total of 10 of every broker"),
    ),
]
"""What a file may not say, and what is told."""
SAID_BY_THE_READER_ALONE = ("not TOML", "has an [[entity]] already", "would sum to", "not a size", "not nan")


def parsed(text: str) -> PolicyFile:
    Path("policy.toml").write_text(text, encoding="utf-8")
    return read_policy_file(Path("policy.toml"))


def refused(text: str) -> str:
    with pytest.raises(UsageError) as caught:
        parsed(text)
    assert "\n" not in caught.value.message
    return caught.value.message


def test_the_example_says_what_its_comments_say() -> None:
    policy = read_policy_file(EXAMPLE)
    assert policy.internal_principals == {"broker"}
    assert policy.request_rates == {Entity.of(user="alice", client_id="reports"): 50.0}
    assert policy.thresholds == ThresholdSettings(
        topics={"orders": 40 * MIB, "clicks": 80 * MIB}, totals={None: 200 * MIB}
    )
    assert policy.entities == {
        Entity.of(user="alice", client_id="reports"): {"on_violation": OnViolation.ERROR, "request_rate": 50.0},
        Entity.of(user=None, client_id="web"): {"mode": Mode.SMOOTH, "max_throttle_ms": 2000},
        Entity.of(user="loader"): {"scope": Scope.CLUSTER, "fetch_over_quota": FetchOverQuota.KAFKA},
        Entity.of(user="bob"): {"mode": Mode.SHADOW},
        Entity.of(client_id="monitoring"): {"exempt": True},
    }


def test_an_empty_file_says_nothing() -> None:
    assert parsed("# nothing\n") == PolicyFile()


@pytest.mark.parametrize(("text", "told"), REFUSED)
def test_what_can_not_be_meant_is_refused_with_one_line(text: str, told: str) -> None:
    assert refused(text) == f"policy.toml{told}"


@pytest.mark.parametrize("text", [text for text, told in REFUSED if not any(map(told.count, SAID_BY_THE_READER_ALONE))])
def test_the_schema_refuses_it_too(text: str) -> None:
    document = tomllib.loads(text)
    assert not jsonschema.Draft202012Validator(SCHEMA).is_valid(document)


def test_the_published_schema_has_every_setting_and_group_as_they_are_read_and_takes_the_example() -> None:
    hints = get_type_hints(EntityTable, include_extras=True)
    settings = {name: _setting(hints[name]) for name in SETTINGS}
    entity = SCHEMA["properties"]["entity"]["items"]
    assert {name: each for name, each in entity["properties"].items() if name in settings} == settings
    assert entity["properties"].keys() - settings == {"user", "user_default", "client_id", "client_id_default"}
    assert entity["allOf"][1] == {"anyOf": [{"required": [name]} for name in settings]}
    assert SCHEMA["properties"]["group"] == schema_of(tuple[Group, ...])
    jsonschema.validate(tomllib.loads(EXAMPLE.read_text(encoding="utf-8")), SCHEMA)


def test_a_policy_may_be_a_table_of_another_file() -> None:
    table = Path("daemon.toml#policy")
    Path("daemon.toml").write_text("[policy]\ninternal_principals = ['broker']\n")
    assert read_policy_file(table).internal_principals == {"broker"}
    Path("daemon.toml").write_text("[policy]\nquotas = 1\n")
    with pytest.raises(UsageError, match=r"daemon\.toml:2: policy\.quotas: unknown name"):
        read_policy_file(table)
    Path("daemon.toml").write_text("policy = 1\n")
    with pytest.raises(UsageError, match=r"daemon\.toml has no table policy"):
        read_policy_file(table)


def test_a_file_that_can_not_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*none\.toml: No such file"):
        read_policy_file(tmp_path / "none.toml")
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="it is not UTF-8"):
        read_policy_file(binary)
