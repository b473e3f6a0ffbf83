"""--columns and --limit, names that are told when one is wrong, and colour on terminals that take it."""

import json
import re
from pathlib import Path

import pytest
import yaml
from tests.support.processes.run_cli import refused, run_cli

from kafka_quotas.cli.output.listing import Listing, Table, View, plain_columns
from kafka_quotas.cli.output.render import selected
from kafka_quotas.core.errors import UsageError

RATE, SHARE = "producer_byte_rate", "request_percentage"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Three entities with four quotas, and a journal of its own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    url = f"local:{tmp_path}/q.db"
    for who, config in (
        (("--user", "alice"), f"{RATE}=10MiB,{SHARE}=50"),
        (("--user", "bob", "--client", "app"), f"{RATE}=unlimited"),
        (("--client-default",), f"{RATE}=2M"),
    ):
        assert run_cli("alter", "--store", url, *who, "--add-config", config)[0] == 0
    return url


def test_a_table_has_the_columns_in_the_order_asked_for(store: str) -> None:
    _, out, _ = run_cli("describe", "--store", store, "--columns", "value,key,user")
    assert [line.split() for line in out.splitlines() if "alice" in line] == [
        ["10485760", RATE, "alice"],
        ["50", SHARE, "alice"],
    ]
    assert out.splitlines()[0].split() == ["value", "key", "user"]


def test_a_table_with_rows_that_machines_do_not_get_has_their_columns_alone() -> None:
    records = Table(columns=plain_columns(["value"]), rows=[(1,)])
    table = Table(columns=plain_columns(["value", "why"]), rows=[("one", "a quota"), ("none", "nothing is known")])
    listing = Listing(noun="quotas", data={}, table=table, records=records)
    part, _ = selected(listing, View(columns=("value",)))
    assert part.table.rows == [[1]]
    with pytest.raises(UsageError, match="unknown column: 'why'"):
        selected(listing, View(columns=("why",)))


def test_csv_and_markdown_have_them_too(store: str) -> None:
    assert run_cli("describe", "--store", store, "--columns", "user,value", "-o", "csv")[1].splitlines() == [
        "user,value",
        "alice,10485760",
        "alice,50",
        "bob,9223372036854775807",
        ",2000000",
    ]
    _, out, _ = run_cli("describe", "--store", store, "--columns", "key", "-o", "markdown", "--limit", "1")
    assert [line.strip("| ") for line in out.splitlines()] == ["key", ":-------------------", RATE]


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_documents_have_rows_of_just_these(store: str, form: str) -> None:
    argv = ("describe", "--store", store, "--columns", "client-id,VALUE,key", "--limit", "3", "-o", form)
    _, out, err = run_cli(*argv)
    assert (json.loads(out) if form == "json" else yaml.safe_load(out)) == {
        "schema": "kafka-quotas.quotas.rows/1",
        "rows": [
            {"client_id": None, "value": 10485760, "key": RATE},
            {"client_id": None, "value": 50, "key": SHARE},
            {"client_id": "app", "value": 9223372036854775807, "key": RATE},
        ],
    }
    assert err == "note: 1 more not shown, by --limit 3\n"


def test_without_columns_the_limit_counts_what_the_form_lists(store: str) -> None:
    _, out, err = run_cli("describe", "--store", store, "--limit", "1", "--output", "json")
    assert [entry["entity"] for entry in json.loads(out)["entries"]] == [{"user": "alice"}]
    assert err == "note: 2 more not shown, by --limit 1\n"
    _, out, err = run_cli("describe", "--store", store, "--limit", "1", "--output", "csv")
    assert len(out.splitlines()) == 2
    assert err == "note: 3 more not shown, by --limit 1\n"


def test_a_limit_that_leaves_nothing_out_says_nothing(store: str) -> None:
    whole = run_cli("describe", "--store", store)
    assert run_cli("describe", "--store", store, "--limit", "0") == whole
    assert run_cli("describe", "--store", store, "--limit", "4") == whole


@pytest.mark.parametrize(
    ("argv", "columns"),
    [
        (("load-test", "restore", "--journal-dir", "."), "run,error"),
        (("load-test", "validate", "kip599-burst", "--embedded"), "message,hint"),
    ],
)
def test_lists_of_load_tests_have_columns_too(argv: tuple[str, ...], columns: str) -> None:
    _, out, _ = run_cli(*argv, "--columns", columns, "-o", "csv")
    assert out.splitlines()[0] == columns
    assert run_cli(*argv, "--columns", "nope")[0] == 2


@pytest.mark.parametrize("form", ["table", "json", "yaml", "csv", "markdown"])
def test_a_wrong_name_tells_those_there_are(store: str, form: str) -> None:
    named = "user, client_id, ip, topic, broker, group, defaults, key, value"
    told = f"error: unknown column: 'vlaue'\nhint: the columns are {named}\n"
    assert run_cli("describe", "--store", store, "--columns", "key,vlaue", "--output", form) == (2, "", told)


def test_an_empty_name_is_an_unset_variable(store: str) -> None:
    err = refused("describe", "--store", store, "--columns", "")
    assert err.startswith("error: --columns has an empty name\nhint: ")


@pytest.mark.parametrize("form", ["table", "markdown"])
def test_a_name_cannot_steer_the_terminal_or_end_its_row(tmp_path: Path, form: str) -> None:
    url = f"local:{tmp_path}/q.db"
    name = "\x1b[31mred\nline"
    change = ("alter", "--store", url, "--user", name, "--add-config", f"{RATE}=1")
    assert r"\x1b[31mred\nline" in run_cli(*change, "--dry-run")[1].splitlines()[-1]
    assert run_cli(*change)[0] == 0
    for terminal in (False, True):
        argv = ("describe", "--store", url, "--columns", "user,key", "--output", form)
        row = run_cli(*argv, terminal=terminal)[1].splitlines()[-1]
        assert row.strip("| ").startswith(r"\x1b[31mred\nline")


def test_a_form_and_a_choice_are_known_in_any_case(store: str) -> None:
    assert run_cli("describe", "--output", "JSON") == run_cli("describe", "--output", "json")
    assert run_cli("top", "--once", "--sort", "NAME") == run_cli("top", "--once", "--sort", "name")


def test_what_migrates_comes_before_what_is_only_there(tmp_path: Path) -> None:
    source, target = f"local:{tmp_path}/from.db", f"local:{tmp_path}/to.db"
    for number in range(3):
        change = ("--user", f"a{number}", "--add-config", f"{RATE}=1")
        assert run_cli("alter", "--store", target, *change)[0] == 0
    assert run_cli("alter", "--store", source, "--user", "z", "--add-config", f"{RATE}=1")[0] == 0
    _, out, _ = run_cli("migrate", "--from", source, "--to", target, "--dry-run", "--limit", "2")
    assert out.splitlines()[2].startswith("user z ")
    assert out.splitlines()[2].endswith("would be migrated")
    assert out.splitlines()[4] == "the first 2 of 4; --limit 0 shows all"


def test_a_listing_longer_than_a_screen_ends_with_its_total(tmp_path: Path) -> None:
    url, file = f"local:{tmp_path}/q.db", tmp_path / "q.json"
    entries = [{"entity": {"user": f"u{number}"}, "quotas": {RATE: 1}} for number in range(101)]
    file.write_text(json.dumps({"schema": "kafka-quotas.quotas/1", "entries": entries}), encoding="utf-8")
    assert run_cli("apply", str(file), "--store", url)[0] == 0
    assert run_cli("describe", "--store", url)[2] == "note: 101 quotas of 101 entities\n"
    assert run_cli("describe", "--store", url, "--output", "csv")[2] == ""
    assert run_cli("tree", "--store", url)[2].startswith("note: 101 quotas; --user, ")


WRONG = ("alter", "--user", "alice", "--add-config", "no_such_key=1")


def bare(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.mark.parametrize(("arguments", "marked"), [(WRONG, "\x1b[1;31merror:"), (("--help",), "\x1b[1mQuotas")])
def test_a_terminal_shows_errors_and_headings_in_colour(arguments: tuple[str, ...], marked: str) -> None:
    plain = run_cli(*arguments)
    coloured = run_cli(*arguments, terminal=True, environment={"NO_COLOR": ""})
    assert marked in coloured[1] + coloured[2]
    assert [bare(text) for text in coloured[1:]] == list(plain[1:])


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"NO_COLOR": "", "TERM": "dumb"}])
@pytest.mark.parametrize("arguments", [WRONG, ("--help",)])
def test_colour_can_be_switched_off(arguments: tuple[str, ...], environment: dict[str, str]) -> None:
    assert "\x1b" not in "".join(run_cli(*arguments, terminal=True, environment=environment)[1:])
