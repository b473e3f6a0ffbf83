"""`context` through the command line, and how strong a context is beside options and variables."""

import io
import json
from pathlib import Path

import pytest
from tests.support.processes.run_cli import printed, refused, run_cli
from tests.support.stores.stored_quotas import new_store

from kafka_quotas.cli.completion.values import complete_contexts
from kafka_quotas.cli.framework.store_choice import Origin, choose_known_store, choose_store
from kafka_quotas.cli.options.windows import WindowSource
from kafka_quotas.stores.address import StoreSettings

QUOTA = ("--user", "alice", "--add-config", "producer_byte_rate=1MB")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for configuration, state and data of its own."""
    for name in ("CONFIG", "STATE", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    return tmp_path


def origins(*options: str, **environment: str) -> dict[str, tuple[str | None, str, str | None]]:
    document = json.loads(printed("context", "show", "-o", "json", *options, environment=environment))
    return {each["setting"]: (each["value"], each["origin"], each["from"]) for each in document["settings"]}


@pytest.fixture
def contexts(home: Path) -> Path:
    """Two contexts, `prod` in use."""
    printed("context", "set", "prod", "--store", f"local:{home}/prod.db", "--use")
    printed("context", "set", "lab", "--store", f"local:{home}/lab.db")
    return home / "config" / "kafka-quotas" / "contexts.toml"


def test_lists_contexts_and_marks_the_one_in_use(contexts: Path, home: Path) -> None:
    document = json.loads(printed("context", "list", "--output", "json"))
    assert document == {
        "schema": "kafka-quotas.contexts/1",
        "file": str(contexts),
        "contexts": [
            {"name": "lab", "store": f"local:{home}/lab.db", "current": False, "protected": False},
            {"name": "prod", "store": f"local:{home}/prod.db", "current": True, "protected": False},
        ],
    }
    assert [line.split()[0] for line in printed("context", "list").splitlines()[2:]] == ["lab", "*"]


def test_without_contexts_the_way_to_one_is_told(home: Path) -> None:
    code, _, err = run_cli("context", "list")
    assert (code, err.splitlines()[0]) == (0, "note: there are no contexts")


def test_option_beats_variable_beats_context_beats_default(contexts: Path, home: Path) -> None:
    option, variable = f"local:{home}/o.db", {"KAFKA_QUOTAS_STORE": f"local:{home}/v.db"}
    assert origins("--store", option, **variable)["store"] == (option, "option", "--store")
    assert origins(**variable)["store"] == (f"local:{home}/v.db", "variable", "KAFKA_QUOTAS_STORE")
    assert origins()["store"] == (f"local:{home}/prod.db", "context", "prod")
    assert origins()["context"] == ("prod", "context", str(contexts))
    printed("context", "use", "--none")
    assert origins()["store"] == (f"local:{home}/data/kafka-quotas/quotas.db", "default", None)
    assert origins()["context"] == (None, "default", None)


@pytest.mark.parametrize(
    ("options", "environment", "origin"),
    [
        (("--context", "lab"), {"KAFKA_QUOTAS_STORE": "local:/v.db"}, ("lab", "option", "--context")),
        (("--store", "context:lab"), {}, ("lab", "option", "--store")),
        ((), {"KAFKA_QUOTAS_CONTEXT": "lab"}, ("lab", "variable", "KAFKA_QUOTAS_CONTEXT")),
        ((), {"KAFKA_QUOTAS_STORE": "context:lab"}, ("lab", "variable", "KAFKA_QUOTAS_STORE")),
    ],
)
def test_a_context_is_chosen_in_every_way(
    contexts: Path, home: Path, options: tuple[str, ...], environment: dict[str, str], origin: tuple[str, ...]
) -> None:
    found = origins(*options, **environment)
    assert found["context"] == origin
    assert found["store"] == (f"local:{home}/lab.db", "context", "lab")


def test_alter_and_describe_go_to_the_context_and_do_not_call_it_local(contexts: Path, home: Path) -> None:
    line = f"user alice in local:{home}/prod.db (context prod): producer_byte_rate not set -> 1 MB/s\n"
    assert run_cli("alter", *QUOTA) == (0, line, "")
    assert json.loads(printed("describe", "-o", "json"))["entries"] != []
    code, _, err = run_cli("describe", "--context", "lab")
    assert (code, err.splitlines()[0]) == (2, f"error: there is no store at {home}/lab.db"), "alter made no second one"
    printed("context", "use", "--none")
    code, _, err = run_cli("alter", *QUOTA)
    assert (code, err.startswith("note: this is a file on this machine")) == (0, True)


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (("describe", "--context", "nope"), "there is no context 'nope'"),
        (("describe", "--context", "lab", "--store", "local:/x"), "--store and --context exclude each other"),
        (("describe", "--context", ""), "--context is empty"),
        (("context", "use"), "name the context to use"),
        (("context", "use", "lab", "--none"), "name the context to use"),
        (("context", "use", "nope"), "there is no context 'nope'"),
        (("context", "remove", "nope"), "there is no context 'nope'"),
        (("context", "set", "new"), "a new context needs a store: new"),
        (("context", "set", "a b", "--store", "local:/x"), "not a name for a context"),
        (("context", "set", "lab", "--username", "me"), "a user name and a password go together"),
        (("context", "set", "lab", "--property", "ssl.key.password=hunter2"), "ssl.key.password is a secret"),
        (("context", "set", "lab", "--property", "x"), "not KEY=VALUE"),
        (("context", "set", "lab", "--prometheus", "host:9090"), "not the URL of metrics: 'host:9090'"),
        (("context", "test", "nope"), "there is no context 'nope'"),
        (("context", "test", "lab", "--all"), "a context and --all exclude each other"),
        (("daemon", "status", "--context", "lab"), "context lab has no control socket"),
        (("daemon", "status", "--context", "lab", "--control", "x"), "--control and --context exclude each other"),
        (("context", "show", "lab", "--store", "local:/x"), "exclude each other"),
        (
            ("context", "set", "lab", "--username", "me", "--password-file", "a", "--password-command", "b"),
            "--password-file and --password-command exclude each other",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_and_changes_nothing(contexts: Path, argv: tuple[str, ...], told: str) -> None:
    before = contexts.read_bytes()
    err = refused(*argv)
    assert told in err.splitlines()[0]
    assert "hunter2" not in err
    assert contexts.read_bytes() == before


def test_a_context_says_which_daemon_and_which_metrics_are_asked(contexts: Path, home: Path) -> None:
    socket, url = home / "none.sock", "http://127.0.0.1:1/metrics"
    printed("context", "set", "lab", "--prometheus", url)
    printed("context", "set", "prod", "--control", str(socket), "--prometheus", url)
    assert origins()["control"] == (str(socket), "context", "prod")
    assert origins("--context", "lab")["prometheus"] == (url, "context", "lab")
    printed("alter", *QUOTA)
    printed("alter", *QUOTA, "--context", "lab")
    told = {
        ("daemon", "status"): f"no daemon answers on {socket}",
        ("why", "--user", "alice"): f"no daemon answers on {socket}",
        ("why", "--user", "alice", "--prometheus", f"{url}2"): "no metrics from 127.0.0.1:1",
        ("top", "--once", "--context", "lab"): "no metrics from 127.0.0.1:1",
        ("describe", "--effective", "--user", "alice", "--with-usage"): f"no daemon answers on {socket}",
    }
    for argv, message in told.items():
        code, out, err = run_cli(*argv)
        assert (code, out) == (1, ""), argv
        assert err.startswith(f"error: {message}"), argv
    away = ("--store", f"local:{home}/prod.db")
    code, _, err = run_cli("why", "--user", "alice", *away)
    assert str(socket) not in err, "a store that was named otherwise has no part in the context"


def test_what_a_context_names_is_tried_part_by_part(contexts: Path, home: Path) -> None:
    printed("alter", *QUOTA)
    assert "1 entity with quotas" in printed("context", "test")
    printed("context", "set", "prod", "--prometheus", "http://127.0.0.1:1/metrics")
    code, out, err = run_cli("context", "test", "--all", "-o", "json")
    found = json.loads(out)["addresses"]
    assert [(each["context"], each["part"], each["reached"]) for each in found] == [
        ("lab", "store", False),
        ("prod", "store", True),
        ("prod", "prometheus", False),
    ]
    assert found[0]["answer"] == f"there is no store at {home}/lab.db"
    assert (code, err.splitlines()[0]) == (1, "error: 2 of 3 did not answer")
    printed("context", "use", "--none")
    code, _, err = run_cli("context", "test")
    assert (code, err.splitlines()[0]) == (2, "error: no context is in use")


def test_a_broken_file_is_told_and_does_not_hinder_who_names_a_store(contexts: Path, home: Path) -> None:
    contexts.write_text("current = \n")
    code, _, err = run_cli("describe")
    assert (code, err.startswith(f"error: {contexts}:1: not TOML")) == (2, True)
    assert run_cli("describe", "--store", new_store(home, {}))[0] == 0


def test_secrets_are_nowhere_in_what_is_shown(contexts: Path, home: Path) -> None:
    (home / "secret").write_text("hunter2")
    printed("context", "set", "lab", "--username", "me", "--password-command", "echo hunter2")
    with contexts.open("a") as file:
        file.write('[contexts.lab.properties]\n"ssl.key.password" = { file = "' + str(home / "secret") + '" }\n')
    for form in ("table", "json", "yaml", "csv", "markdown"):
        for argv in (("show", "lab"), ("show", "--context", "lab"), ("list",)):
            assert "hunter2" not in printed("context", *argv, "--output", form)
    shown = printed("context", "show", "lab")
    assert "(secret, from the command echo)" in shown
    assert f"(secret, from the file {home}/secret)" in shown


def test_the_login_of_a_context_goes_to_its_own_store_only(contexts: Path, home: Path) -> None:
    printed("context", "set", "prod", "--property", "client.id=prod")
    assert choose_store(store=None, environment={}).settings().client_properties == {"client.id": "prod"}
    elsewhere = choose_store(store="kafka://elsewhere:9092", environment={})
    assert elsewhere.settings().client_properties == {}


def test_client_properties_named_more_strongly_replace_those_of_the_context(contexts: Path, home: Path) -> None:
    printed("context", "set", "prod", "--property", "client.id=prod")
    (home / "other").write_text("client.id=other\n")
    other, variable = {"client.id": "other"}, {"KAFKA_QUOTAS_COMMAND_CONFIG": str(home / "other")}
    by_option = choose_store(store=None, command_config=home / "other", environment={})
    assert by_option.settings().client_properties == other
    assert choose_store(store=None, environment=variable).settings().client_properties == other
    asked_for = choose_store(store=None, context="prod", environment=variable)
    assert asked_for.settings().client_properties == {"client.id": "prod"}


def test_a_store_that_was_written_down_is_logged_in_to_as_its_context_says(contexts: Path, home: Path) -> None:
    printed("context", "set", "lab", "--property", "client.id=lab")
    known = choose_known_store(f"local:{home}/lab.db", environment={})
    assert (known.url.origin, known.settings().client_properties) == (Origin.CONTEXT, {"client.id": "lab"})
    assert choose_known_store(f"local:{home}/x.db", environment={}).settings().client_properties == {}


def test_names_of_contexts_are_completed(contexts: Path) -> None:
    assert complete_contexts("") == ["lab", "prod"]
    assert complete_contexts("p") == ["prod"]
    contexts.write_text("broken")
    assert complete_contexts("") == []


def test_a_context_is_removed_with_all_that_is_its_own(contexts: Path, home: Path) -> None:
    before = contexts.read_text(encoding="utf-8")
    printed("context", "set", "lab.eu", "--store", "kafka://a:1", "--property", "client.id=x")
    assert printed("context", "remove", "lab.eu") == f"Context lab.eu is no longer in {contexts}.\n"
    assert contexts.read_text(encoding="utf-8").rstrip() == before.rstrip()
    assert run_cli("context", "remove", "prod") == (
        0,
        f"Context prod is no longer in {contexts}.\n",
        "note: prod was in use; no context is now\n",
    )
    assert origins()["context"] == (None, "default", None)
    assert [each.split()[0] for each in printed("context", "list").splitlines()[2:]] == ["lab"]


def test_a_command_that_tells_a_password_runs_once(home: Path) -> None:
    runs = home / "runs"
    program = home / "pass"
    program.write_text(f"#!/bin/sh\necho asked >> {runs}\necho secret\n", encoding="utf-8")
    program.chmod(0o700)
    printed("context", "set", "x", "--store", "zk://a:1", "--username", "me", "--password-command", str(program))
    choice = choose_store(store=None, context="x")
    assert choice.settings().client_properties == choice.settings(allow_invalid=True).client_properties
    assert runs.read_text(encoding="utf-8") == "asked\n"


@pytest.fixture
def guarded(contexts: Path, home: Path) -> str:
    """The address of a store with a quota, and of the context `prod`, which is protected."""
    printed("alter", *QUOTA)
    printed("context", "set", "prod", "--protected")
    return f"local:{home}/prod.db"


RAISED = ("--user", "alice", "--add-config", "producer_byte_rate=2MB")
CHANGES: dict[str, tuple[str, ...]] = {
    "alter": ("alter", *RAISED),
    "alter, its store named": ("alter", "--store", "STORE", *RAISED),
    "apply": ("apply", "FILE"),
    "apply, several": ("apply", "FILE", "--context", "lab", "--context", "prod"),
    "migrate": ("migrate", "--from", "OTHER", "--to", "context:prod"),
    "revert": ("revert", "last"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_protected_context_is_changed_only_by_agreement(guarded: str, home: Path, name: str) -> None:
    (home / "q.yaml").write_text("- {entity: {user: alice}, quotas: {producer_byte_rate: 2MB}}\n", encoding="utf-8")
    printed("alter", "--store", f"local:{home}/other.db", *RAISED)
    printed("alter", "--context", "lab", *QUOTA)
    places = {"STORE": guarded, "FILE": str(home / "q.yaml"), "OTHER": f"local:{home}/other.db"}
    argv = [places.get(word, word) for word in CHANGES[name]]
    before = {each: printed("describe", "--context", each) for each in ("prod", "lab")}
    code, _, err = run_cli(*argv)
    if name != "revert":  # which shows what it would do, and needs --yes anyway
        message = f"error: this changes {guarded}, which is protected as context prod\nhint: --yes agrees to that\n"
        assert (code, err) == (2, message)
    assert {each: printed("describe", "--context", each) for each in ("prod", "lab")} == before
    assert run_cli(*argv, "--yes")[0] == 0
    assert printed("describe", "--context", "prod") != before["prod"]


@pytest.mark.parametrize(("answer", "changed"), [("y\n", True), ("n\n", False)])
def test_a_person_is_asked(guarded: str, monkeypatch: pytest.MonkeyPatch, answer: str, changed: bool) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal(answer))
    code, _, err = run_cli("alter", *RAISED)
    assert (code == 0, f"this changes {guarded}, which is protected as context prod. Go on?" in err) == (changed, True)
    assert ("2 MB/s" in printed("describe")) is changed


def test_what_protects_is_shown_and_can_be_taken_away(guarded: str, contexts: Path) -> None:
    assert "protected = true\n" in contexts.read_text(encoding="utf-8")
    (prod,) = (each for each in json.loads(printed("context", "list", "-o", "json"))["contexts"] if each["protected"])
    assert prod["store"] == guarded
    assert "protected" in printed("context", "show", "prod")
    assert printed("alter", *RAISED, "--dry-run")
    printed("context", "set", "prod", "--no-protected")
    printed("alter", *RAISED)


def test_a_new_context_is_followed_by_what_comes_next(home: Path) -> None:
    named = ("context", "set", "prod", "--store", f"local:{home}/prod.db")
    assert run_cli(*named)[2] == "hint: kafka-quotas context use prod makes it every command's default\n"
    assert run_cli(*named, "--use")[2] == "hint: kafka-quotas context test prod tries it\n"


def test_a_store_that_is_not_there_is_not_waited_for(contexts: Path, home: Path) -> None:
    code, _, err = run_cli("watch", "--store", f"local:{home}/nosuch.db", "--duration", "1s")
    assert (code, err.splitlines()[0]) == (2, f"error: there is no store at {home}/nosuch.db")


def test_brokers_are_asked_for_their_windows_with_the_login_of_their_context(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[StoreSettings] = []

    def brokers(url: str, settings: StoreSettings) -> WindowSource:
        asked.append(settings)
        return (url, {})

    monkeypatch.setattr("kafka_quotas.cli.options.windows.broker_source", brokers)
    run_cli("context", "set", "prod", "--store", "kafka://broker-1:9092", "--property", "client.rack=r1")
    run_cli("throttle", "rate", "--quota", "5MB/s", "--observed", "6MB/s", "--bootstrap-server", "broker-1:9092")
    assert [each.client_properties for each in asked] == [{"client.rack": "r1"}]
