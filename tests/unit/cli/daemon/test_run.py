"""daemon.toml: every setting has its place, everything wrong is named at once, and the strongest source wins."""

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from generators.documentation.config_schema import config_schema
from generators.documentation.documents import commands
from tests.support.processes.run_cli import refused, run_cli
from typer.core import TyperOption

from kafka_quotas.cli.daemon.run import sections, setting_name

EXAMPLES = Path(__file__).parents[4] / "examples" / "daemon"
NO_SETTINGS = {"config", "verbose", "_h"}
"""Options of `daemon run` that say where settings come from, or what to show of the help or of an error."""


def test_the_daemon_says_elsewhere_that_it_needs_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    err = refused("daemon", "run", "--upstream", "broker-1:9092", code=1)
    assert err.splitlines()[0] == "error: the daemon needs Linux, and this is darwin"
    assert refused("demo", code=1).splitlines()[0] == "error: the daemon of the demo needs Linux, and this is darwin"


WHOLE = """
[upstream]
upstream = ["b1:9092", "b2:9092"]
[listeners]
listen = "127.0.0.1:19092"
[listeners.properties]
"max.connections" = 7
[listener.internal]
listen = "127.0.0.1:29092"
upstream = "b1:9092"
[store]
store = "local:quotas.db"
[enforcement]
mode = "smooth"
max_throttle_ms = 2000
upstream_windows = false
[policy]
internal_principals = ["broker"]
[telemetry]
metrics_port = 9404
metrics_user = "alice"
[operation]
state_file = "state.bin"
drain_timeout = 2.5
"""


RUN = next(command for command, context in commands() if context.command_path.endswith("daemon run"))
OPTIONS = {setting_name(each): each for each in RUN.params if isinstance(each, TyperOption)}
SECTIONS = sections(OPTIONS)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "daemon.toml").write_text(WHOLE)
    return tmp_path / "daemon.toml"


def in_force(file: Path, *options: str, **environment: str) -> dict[str, tuple[Any, str, str | None]]:
    argv = ("daemon", "check", "--config", str(file), *options, "-o", "json")
    code, out, err = run_cli(*argv, environment=environment)
    assert code == 0, err
    return {each["setting"]: (each["value"], each["origin"], each["from"]) for each in json.loads(out)["settings"]}


def test_every_option_of_the_daemon_has_its_place_in_the_file() -> None:
    settings = [name for names in SECTIONS.values() for name in names]
    assert sorted(OPTIONS.keys() - NO_SETTINGS) == sorted(settings)


def test_settings_come_from_the_file_with_their_lines(file: Path) -> None:
    found = in_force(file)
    assert found["upstream"] == (["b1:9092", "b2:9092"], "file", f"{file}:3")
    assert found["mode"] == ("smooth", "file", f"{file}:14")
    assert found["metrics_user"] == (["alice"], "file", f"{file}:21")
    assert found["drain_timeout"] == (2.5, "file", f"{file}:24")
    assert found["state_file"] == (str(file.parent / "state.bin"), "file", f"{file}:23"), "relative to the file"
    assert found["policy"] == (f"{file}#policy", "file", f"{file}:17")
    assert found["listener"] == ([f"{file}#listener.internal"], "file", f"{file}:8")
    assert found["scope"] == ("broker", "default", None)


def test_an_option_beats_the_file_and_so_does_a_variable(file: Path) -> None:
    found = in_force(file, "--mode", "shadow", KAFKA_QUOTAS_STORE="local:/other.db")
    assert found["mode"] == ("shadow", "option", "--mode")
    assert found["store"] == ("local:/other.db", "variable", "KAFKA_QUOTAS_STORE")
    assert in_force(file)["store"] == ("local:quotas.db", "file", f"{file}:12")


def test_the_variable_of_an_option_beats_the_file_and_is_beaten_by_the_option(file: Path) -> None:
    variables = {
        "KAFKA_QUOTAS_DAEMON_MODE": "kafka",
        "KAFKA_QUOTAS_DAEMON_METRICS_USER": "bob eve",
        "KAFKA_QUOTAS_DAEMON_WORKERS": "",
    }
    found = in_force(file, **variables)
    assert found["mode"] == ("kafka", "variable", "KAFKA_QUOTAS_DAEMON_MODE")
    assert found["metrics_user"] == (["bob", "eve"], "variable", "KAFKA_QUOTAS_DAEMON_METRICS_USER")
    assert found["workers"] == (1, "default", None), "an empty variable is none"
    assert in_force(file, "--mode", "shadow", **variables)["mode"] == ("shadow", "option", "--mode")


def test_the_file_itself_and_what_is_required_may_come_from_variables(file: Path) -> None:
    _, out, _ = run_cli("daemon", "check", "-o", "json", environment={"KAFKA_QUOTAS_DAEMON_CONFIG": str(file)})
    assert {"file"} < {each["origin"] for each in json.loads(out)["settings"]}
    code, out, _ = run_cli("daemon", "check", environment={"KAFKA_QUOTAS_DAEMON_UPSTREAM": "b1:9092"})
    assert (code, out.partition("\n")[0]) == (0, "The configuration is valid: 127.0.0.1:9092.")
    code, _, err = run_cli("daemon", "check", "--upstream", "b:1", environment={"KAFKA_QUOTAS_DAEMON_MODE": "fast"})
    assert code == 2
    assert "KAFKA_QUOTAS_DAEMON_MODE" in err


def test_a_store_that_no_file_names_is_the_one_of_the_variable(file: Path) -> None:
    file.write_text("[upstream]\nupstream = 'b:1'\n")
    found = in_force(file, KAFKA_QUOTAS_STORE="local:/other.db")
    assert found["store"] == ("local:/other.db", "variable", "KAFKA_QUOTAS_STORE")


def test_everything_that_is_wrong_is_named_at_once(file: Path) -> None:
    file.write_text(
        "mode = 'smooth'\n[upstream]\nupstream = 'b:1'\n[listeners]\nscope = 'broker'\nlisten = {}\n"
        "[enforcment]\n[enforcement]\nmode = 'smoth'\nmax_throttle_ms = '2s'\nupstream_windows = 'yes'\n"
        "scop = 'broker'\npolicy = 'p.toml'\n[policy]\n[operation]\ndrain_timeout = true\n"
    )
    err = refused("daemon", "check", "--config", str(file))
    assert err.splitlines() == [
        f"error: {file}:1: there is no section mode (mode belongs in [enforcement])",
        f"error: {file}:5: [listeners] has no scope (scope belongs in [enforcement])",
        f"error: {file}:6: listen: a mapping is not a text",
        f"error: {file}:7: there is no section enforcment (did you mean enforcement?)",
        f"error: {file}:9: mode: 'smoth' is not one of kafka, smooth, shadow",
        f"error: {file}:10: max_throttle_ms: '2s' is not a whole number",
        f"error: {file}:11: upstream_windows: 'yes' is not true or false",
        f"error: {file}:12: [enforcement] has no scop (did you mean scope?)",
        f"error: {file}:14: policy is given twice (by the setting and by a table; keep one of them)",
        f"error: {file}:16: drain_timeout: True is not a number",
        f"error: {file} can't be used: 10 problems",
    ]


@pytest.mark.parametrize("text", ["[daemon]\nx = " + "[" * 100_000, None], ids=["nested", "a device"])
def test_check_refuses_what_has_no_end(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "daemon.toml"
    if text is None:
        file.symlink_to("/dev/zero")
    else:
        file.write_text(text, encoding="utf-8")
    err = refused("daemon", "check", "--config", str(file))
    assert err.startswith(f"error: {'cannot read ' if text is None else ''}{file}"), err
    assert "hint: it holds the configuration of the daemon" in err
    assert "internal" not in err


def test_check_reads_every_file_that_is_named(file: Path) -> None:
    code, out, err = run_cli("daemon", "check", "--config", str(file))
    assert (code, out.partition("\n")[0]) == (0, "The configuration is valid: 127.0.0.1:19092, 127.0.0.1:29092.")
    assert err == f"note: read {file}, {file}#policy\n"
    file.write_text(WHOLE.replace("internal_principals", "internal_principal"))
    code, _, err = run_cli("daemon", "check", "--config", str(file))
    assert (code, err.splitlines()[0].split(" (")[0]) == (2, f"error: {file}:18: unknown name 'internal_principal'")
    file.write_text(WHOLE.replace('"max.connections" = 7', '"max.connection" = 7'))
    code, _, err = run_cli("daemon", "check", "--config", str(file))
    assert (code, err.splitlines()[0].split(" (")[0]) == (2, f"error: {file}:7: unknown property max.connection")


def test_a_setting_that_was_removed_is_answered_with_what_to_do(file: Path) -> None:
    file.write_text("[upstream]\nupstream = 'b:1'\n[enforcement]\nmutation_algorithm = 'rate'\n")
    _, _, err = run_cli("daemon", "check", "--config", str(file))
    assert err.startswith(
        f"error: {file}:4: [enforcement] has no mutation_algorithm (leave it out: the daemon measures"
    )


def test_a_file_that_is_not_there_or_no_toml_is_one_line(tmp_path: Path) -> None:
    code, _, err = run_cli("daemon", "run", "--config", str(tmp_path / "none.toml"))
    assert (code, err.splitlines()[0]) == (2, f"error: cannot read {tmp_path}/none.toml: No such file or directory")
    (tmp_path / "broken.toml").write_text("[upstream\n")
    code, _, err = run_cli("daemon", "check", "--config", str(tmp_path / "broken.toml"))
    assert (code, err.startswith(f"error: {tmp_path}/broken.toml:1: not TOML")) == (2, True)


def test_the_published_schema_takes_the_example_and_refuses_what_the_reader_refuses() -> None:
    schema = json.loads((EXAMPLES / "daemon.schema.json").read_text(encoding="utf-8"))
    assert config_schema(OPTIONS) == schema
    validator = jsonschema.Draft202012Validator(schema)
    assert validator.is_valid(tomllib.loads((EXAMPLES / "daemon.toml").read_text(encoding="utf-8")))
    assert validator.is_valid(tomllib.loads(WHOLE))


SECTION_OF = {name: section for section, names in SECTIONS.items() for name in names}
WRONG = {
    "upstream": ["'b1'", "'b1:0'", "'b1:9092,'", "['b1:9092', 'b2']", "5", "''"],
    "connect_timeout": ["0", "'soon'"],
    "listen": ["5", "'0.0.0.0'", "'h:65536'", "true", "['h:1']"],
    "port_range": ["'9-1'", "'19100'", "'0-5'", "'19100-19099'", "'1-70000'", "19100", "'200-30'"],
    "broker_address": ["'1'", "'1=0'", "['1=20001', 'x=1']"],
    "advertised_host": ["''"],
    "mode": ["'smoth'", "1"],
    "max_throttle_ms": ["0", "-1", "'2s'", "1.5"],
    "quota_window_num": ["-3", "0", "'3'"],
    "quota_window_size_seconds": ["0"],
    "controller_quota_window_num": ["-1"],
    "controller_quota_window_size_seconds": ["0"],
    "upstream_windows": ["'yes'", "1"],
    "principal": ["''"],
    "internal_principal": ["['a', '']"],
    "connection_rate": ["0"],
    "max_connections": ["0", "'many'"],
    "max_request_bytes": [
        "-5",
        "0",
        "'-5'",
        "'0'",
        "'0MiB'",
        "'5MiB/s'",
        "'80Mbps'",
        "'much'",
        "1.5",
        "'KB'",
        "'5 KB'",
    ],
    "queued_max_request_bytes": ["-1", "''"],
    "max_bucket_memory": ["0"],
    "metrics_port": ["65536", "-1", "'x'", "'h:'", "true"],
    "metrics_top": ["1001"],
    "event_log": ["'kafka://b:1'", "'kafka:///t'", "''"],
    "event_log_keep": ["0"],
    "fleet": ["'topic'", "'kafka://b:1'", "'kafka://b:1/a/b'", "5"],
    "fleet_fallback": ["'none'"],
    "control_mode": ["'0777'", "'0755'", "'0060'", "'abc'", "600", "'06600'"],
    "workers": ["0", "65"],
    "drain_timeout": ["-1"],
}
"""Values that can't be meant, by setting, as the file has them."""
RIGHT = {
    "upstream": ["'b1:9092, [::1]:9093'"],
    "listen": ["'[::]:0'"],
    "port_range": ["'9-10'", "'19100-19100'", "'99-100'", "'1-65535'"],
    "broker_address": ["'1=20001,2-5=h:20002'"],
    "max_request_bytes": ["1", "'0.5MiB'", "'100 MB'", "'1GiB'"],
    "metrics_port": ["0", "'0.0.0.0:9404'", "'9404'"],
    "event_log": ["'events'", "'kafka://b1:9092,b2:9092/t'"],
    "fleet": ["'kafka://b1:9092,b2:9092/t'"],
    "control_mode": ["'0660'", "'666'"],
    "internal_principal": ["'a'", "['a', 'b']"],
}
PROPERTY_WRONG = {
    '"max.conections"': ["7"],
    '"max.connections"': ["0", "'-1'", "'many'", "2147483648"],
    "max.connections": ["0"],
    '"connections.max.idle.ms"': ["-2", "0"],
    '"port.range"': ["'9-1'", "5"],
    '"broker.addresses"': ["'1'"],
    '"security.protocol"': ["'TLS'"],
}
TABLE_WRONG = {
    "listener.internal": ['upstream = "b:1"', 'listen = "h:1"\nupstream = "b"', 'listen = "h"\nupstream = "b:1"'],
    "[policy.entity]": ["mode = 'kafka'", "user = 'a'", "user = 'a'\nmode = 'smoth'", "user = 'a'\nmodus = 1"],
    "policy": ["internal_principals = 'a'", "principals = ['a']"],
    "policy.thresholds": ["total = 0", "totals = 1"],
}


def tables(names: dict[str, list[str]], *, of: str = "") -> list[str]:
    """A document for each value of a setting or property."""
    section = {name: f"[{of or SECTION_OF[name]}]" for name in names}
    return [f"{section[name]}\n{name} = {value}\n" for name, values in names.items() for value in values]


def judged(folder: Path, document: str) -> tuple[str, bool]:
    """What `daemon check` says of a document that is otherwise complete, and whether the schema takes it."""
    if "[upstream]" not in document:
        document = f"[upstream]\nupstream = 'b1:9092'\n{document}"
    path = folder / "daemon.toml"
    path.write_text(document)
    _, _, err = run_cli("daemon", "check", "--config", str(path))
    schema = json.loads((EXAMPLES / "daemon.schema.json").read_text(encoding="utf-8"))
    return err, jsonschema.Draft202012Validator(schema).is_valid(tomllib.loads(document))


@pytest.mark.parametrize(
    "document",
    [
        *("[upstrem]\n", "[limits]\nx = 1\n"),
        *tables(WRONG),
        *tables(PROPERTY_WRONG, of="listeners.properties"),
        *(f"[{name}]\n{text}\n" for name, texts in TABLE_WRONG.items() for text in texts),
    ],
)
def test_what_can_not_be_meant_is_refused_with_its_line_and_by_the_schema_too(tmp_path: Path, document: str) -> None:
    err, is_valid = judged(tmp_path, document)
    assert re.match(rf"error: {tmp_path}/daemon.toml:\d+: ", err), err
    assert err.splitlines()[-1] == f"error: {tmp_path}/daemon.toml can't be used: 1 problem"
    assert not is_valid


@pytest.mark.parametrize("document", tables(RIGHT))
def test_what_can_be_meant_is_taken_by_both(tmp_path: Path, document: str) -> None:
    err, is_valid = judged(tmp_path, document)
    assert "error" not in err
    assert is_valid


def test_every_value_property_and_entity_that_is_wrong_is_listed_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "daemon.toml"
    path.write_text(
        "[upstream]\nupstream = 'b1'\n[listeners]\nlisten = 5\nport_range = '9-1'\n"
        "[listeners.properties]\n'max.conns' = 1\n'max.connections' = 0\n"
        "[listener.one]\nlisten = 'h'\nupstream = 'b:1'\n[listener.two]\nlisten = 'h:1'\n"
        "[enforcement]\nquota_window_num = -3\n[limits]\nmax_request_bytes = -5\n[telemetry]\nmetrics_port = 'x'\n"
        "[fleet]\nfleet = 'topic'\n[policy]\ninternal_principals = 5\n[[policy.entity]]\nuser = 'a'\nexempt = true\n"
        "[[policy.entity]]\nuser = 'b'\nmode = 'x'\nscope = 'y'\n[policy.thresholds]\ntotal = 0\n"
        "[policy.thresholds.topics]\norders = -1\n"
    )
    code, _, err = run_cli("daemon", "check", "--config", str(path))
    assert code == 2
    lines = [int(line.removeprefix(f"error: {path}:").partition(":")[0]) for line in err.splitlines()[:-1]]
    assert lines == [2, 4, 5, 7, 8, 10, 12, 15, 17, 19, 21, 23, 29, 30, 32, 34]


def test_the_example_is_in_order() -> None:
    code, _, err = run_cli("daemon", "check", "--config", str(EXAMPLES / "daemon.toml"))
    assert code == 0, err
