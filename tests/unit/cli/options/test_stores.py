"""Option values: store choice, plain values, completion, JSON text, property files."""

import json
import math
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from tests.support.processes.run_cli import refused, run_cli

from kafka_quotas.cli.completion.values import OF_THE_STORE
from kafka_quotas.cli.framework.commands import command_of
from kafka_quotas.cli.framework.option_groups import option_info
from kafka_quotas.cli.framework.store_choice import Origin, choose_store
from kafka_quotas.cli.output.listing import Column, Table, json_text
from kafka_quotas.cli.output.render import csv_text, plain_text, yaml_text
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.java import parse_properties


def test_an_option_beats_a_variable_and_a_variable_beats_the_default() -> None:
    environment = {"KAFKA_QUOTAS_STORE": "local:/variable", "KAFKA_QUOTAS_COMMAND_CONFIG": "/variable.properties"}
    choice = choose_store(store="local:/option", command_config=Path("/o"), environment=environment)
    assert (choice.url.value, choice.url.origin) == ("local:/option", Origin.OPTION)
    assert (choice.command_config.value, choice.command_config.origin) == ("/o", Origin.OPTION)
    choice = choose_store(store=None, environment=environment)
    assert (choice.url.value, choice.url.origin) == ("local:/variable", Origin.VARIABLE)
    assert choice.command_config.value == "/variable.properties"
    assert choice.chosen
    choice = choose_store(store=None, environment={"KAFKA_QUOTAS_STORE": ""})
    assert (choice.url.value, choice.url.origin, choice.chosen) == (None, Origin.DEFAULT, False)


def test_the_short_forms_are_addresses() -> None:
    assert choose_store(store=None, bootstrap_server="a:1,b:2", environment={}).url.value == "kafka://a:1,b:2"
    assert choose_store(store=None, zookeeper="a:1/kafka", environment={}).url.value == "zk://a:1/kafka"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"store": "local:x", "bootstrap_server": "a:1"}, "exclude each other"),
        ({"store": None, "zookeeper": "a:1", "bootstrap_server": "a:1"}, "exclude each other"),
        ({"store": ""}, "--store is empty"),
        ({"store": None, "bootstrap_server": " "}, "--bootstrap-server is empty"),
        ({"store": None, "zookeeper": "zk://a:1"}, "takes HOST:PORT"),
    ],
)
def test_unclear_stores_are_refused(given: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        choose_store(**given, environment={})


def test_a_properties_file_that_is_missing_is_told_before_anything_is_opened() -> None:
    with pytest.raises(UsageError, match="cannot read /nonexistent"):
        choose_store(store="local:/x", command_config=Path("/nonexistent"), environment={}).open()


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


def parsed(arguments: list[str]) -> dict[str, Any]:
    """What a command with one option of each kind gets, converted without pydantic."""
    got: dict[str, Any] = {}

    def command(
        numbers: list[int] | None = None,
        text: str = "t",
        colour: Colour = Colour.RED,
        ratio: Annotated[float, option_info("--ratio", min=0.5, max=2)] = 1.0,
        path: Path | None = None,
        flag: bool = False,
    ) -> None:
        """Keep what was given."""
        got.update(numbers=numbers, text=text, colour=colour, ratio=ratio, path=path, flag=flag)

    built = command_of(command, "try")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("typer.core.build_runtime_param", None)  # by which Typer makes converters of pydantic's
        built.main(arguments, standalone_mode=False)
    return got


def test_plain_values_are_converted() -> None:
    defaults = {"text": "t", "colour": Colour.RED, "ratio": 1.0, "path": None, "flag": False}
    assert {name: parsed([])[name] for name in defaults} == defaults
    got = parsed(["--numbers", "1", "--numbers", "-2", "--text", "", "--colour", "blue", "--ratio", "2", "--flag"])
    assert (got["numbers"], got["text"], got["colour"], got["ratio"], got["flag"]) == (
        [1, -2],
        "",
        Colour.BLUE,
        2.0,
        True,
    )
    assert parsed(["--path", "a/b"])["path"] == Path("a/b")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--numbers", "one"], "'one' is not a whole number"),
        (["--numbers", "1.5"], "'1.5' is not a whole number"),
        (["--colour", "green"], "'green' is not one of red, blue"),
        (["--ratio", "x"], "'x' is not a number"),
        (["--ratio", "nan"], "out of range: it must be at least 0.5 and at most 2"),
        (["--ratio", "2.5"], "out of range: it must be at least 0.5 and at most 2"),
    ],
)
def test_values_of_another_kind_are_refused(arguments: list[str], message: str) -> None:
    with pytest.raises(typer.TyperException, match=message):
        parsed(arguments)


def test_what_needs_checks_of_typer_stays_with_typer(tmp_path: Path) -> None:
    got: list[object] = []

    def command(
        path: Annotated[Path, option_info("--path", exists=True)] = Path(), pair: tuple[int, int] = (1, 2)
    ) -> None:
        """Keep what was given."""
        got.extend((path, pair))

    built = command_of(command, "try")
    built.main(["--path", str(tmp_path), "--pair", "3", "4"], standalone_mode=False)
    assert got == [tmp_path, (3, 4)]
    with pytest.raises(typer.TyperException, match="does not exist"):
        built.main(["--path", str(tmp_path / "gone")], standalone_mode=False)


def test_stored_names_complete_and_a_broken_store_completes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = f"local:{tmp_path}/quotas.db"
    for user in ("bob", "alice", "al"):
        run_cli("alter", "--store", store, "--user", user, "--add-config", "producer_byte_rate=1")
    monkeypatch.setenv("KAFKA_QUOTAS_STORE", store)
    assert OF_THE_STORE["--user"](None, "al") == ["al", "alice"]
    monkeypatch.setenv("KAFKA_QUOTAS_STORE", f"local:{tmp_path}")
    assert OF_THE_STORE["--user"](None, "") == []


NUMBERS = [1e15, 1e-5, 1048576.0, -0.5, 12.5, 0.0, 7, 9223372036854775807, 1e300]


def test_json_numbers_are_plain_and_exact() -> None:
    text = json_text({"numbers": NUMBERS, "none": None, "yes": True, "text": 'a"\n\u00e4', "empty": [], "nothing": {}})
    assert json.loads(text) == {
        "numbers": NUMBERS,
        "none": None,
        "yes": True,
        "text": 'a"\n\u00e4',
        "empty": [],
        "nothing": {},
    }
    assert "e+" not in text
    assert "e-" not in text
    assert "\u00e4" in text


def test_what_is_no_number_is_a_text() -> None:
    assert json.loads(json_text([math.nan, math.inf, -math.inf])) == ["NaN", "Infinity", "-Infinity"]
    assert yaml_text([math.nan, math.inf]).split() == ["-", "NaN", "-", "Infinity"]


def test_json_is_indented_as_json_dumps_does() -> None:
    value: Any = {"a": [1, {"b": []}], "c": {}}
    assert json_text(value) == json.dumps(value, indent=2)


def test_tables_keep_texts_that_look_like_numbers() -> None:
    table = Table(
        columns=(Column(title="name"), Column(title="limit", figures=True)), rows=[("007", 1e15), ("1e3", None)]
    )
    assert plain_text(table, style="simple").splitlines()[2:] == ["007     1000000000000000", "1e3"]
    assert csv_text(table) == "name,limit\n007,1000000000000000\n1e3,\n"
    assert "| a\\|b" in plain_text(Table(columns=table.columns, rows=[("a|b", 1)]), style="pipe")
    assert csv_text(Table(columns=(Column(title="name"),), rows=[('a,"b"\n',)])) == 'name\n"a,""b""\n"\n'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1\nb: 2\nc 3\n", {"a": "1", "b": "2", "c": "3"}),
        ("# no\n! no\n\n  a = 1 \n", {"a": "1 "}),
        ("a=1\\\n   2\\\n  3\nb=4", {"a": "123", "b": "4"}),
        ("a\\=b=c\\u0041\\n\\t\\\\", {"a=b": "cA\n\t\\"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=x=y:z", {"a": "x=y:z"}),
        ("a\r\nb=\r\n", {"a": "", "b": ""}),
        ("a = \\ 1", {"a": " 1"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\", {"a": "1"}),
        ("a=1\\\n# no comment", {"a": "1# no comment"}),
        ("", {}),
    ],
)
def test_property_files_are_read_as_java_reads_them(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


READING = (
    *("describe", "describe --effective --user a", "tree", "doctor", "export", "top --once", "why --user a"),
    "migrate --to local:other.db",
)


@pytest.mark.parametrize("command", READING)
def test_a_local_store_that_is_not_there_is_no_empty_one(tmp_path: Path, command: str) -> None:
    name, *options = command.split()
    source = "--from" if name == "migrate" else "--store"
    err = refused(name, source, f"local:{tmp_path}/missing/q.db", *options)
    assert err == (
        f"error: there is no store at {tmp_path}/missing/q.db: there is no folder {tmp_path}/missing\n"
        "hint: check the path; the first change by alter or apply makes the file\n"
    )


def test_a_store_that_nobody_named_may_be_empty_and_a_change_may_make_one(tmp_path: Path) -> None:
    assert run_cli("describe", environment={"XDG_DATA_HOME": str(tmp_path)})[0] == 0
    variable = {"KAFKA_QUOTAS_STORE": f"local:{tmp_path}/q.db"}
    assert run_cli("describe", environment=variable)[0] == 2
    config = ("--user", "a", "--add-config", "producer_byte_rate=1MB")
    assert run_cli("alter", *config, "--dry-run", environment=variable)[0] == 0
    assert run_cli("alter", *config, environment=variable)[0] == 0
    assert run_cli("describe", environment=variable)[0] == 0
