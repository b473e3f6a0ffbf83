"""The daemon's examples: well-formed, about metrics that it serves, with options that it has."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from kafka_quotas.cli.docs.documentation import commands

EXAMPLES = Path(__file__).parents[2] / "examples" / "daemon"
PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
TOLD = set(re.findall(r"`(kafka_(?:server|quotas)_\w+|process_\w+)`", PAGE))
DASHBOARD: dict[str, Any] = json.loads((EXAMPLES / "grafana-dashboard.json").read_text(encoding="utf-8"))
ALERTS = yaml.safe_load((EXAMPLES / "prometheus-alerts.yml").read_text(encoding="utf-8"))


def metrics_in(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:kafka_(?:server|quotas)|process)_\w+", expression))


def test_every_panel_draws_metrics_that_are_served() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    drawn: set[str] = set()
    for panel in panels:
        assert panel["targets"]
        for target in panel["targets"]:
            names = metrics_in(target["expr"])
            assert names or target["expr"].startswith("min(up")
            assert names <= TOLD, names - TOLD
            drawn |= names
    assert {name for name in TOLD if name.endswith("_queue_size")} <= drawn


def test_panels_lie_beside_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert max(x for x, _ in cells) < 24
        assert not cells & taken, panel["title"]
        taken |= cells


def test_what_the_dashboard_lets_choose_is_a_label_that_is_served() -> None:
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]).groups()  # type: ignore[union-attr]
            assert metric in TOLD
            assert label in ("instance", "user", "client_id")


RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_every_alert_is_about_metrics_that_are_served(rule: dict[str, Any]) -> None:
    names = metrics_in(rule["expr"])
    assert names or "up{" in rule["expr"]
    assert names <= TOLD, names - TOLD
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert rule["annotations"]["summary"]


def options() -> set[str]:
    return {name for parameter in COMMANDS["run"].params for name in parameter.opts}


COMMANDS = {
    context.info_name: command
    for command, context in commands()
    if context.command_path.startswith("kafka-quotas daemon ")
}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_pages_on_the_daemon_name_every_option(name: str) -> None:
    pages = "".join(
        (EXAMPLES.parents[1] / "docs" / page).read_text(encoding="utf-8")
        for page in ("daemon.md", "metrics.md", "decision-api.md")
    )
    named = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", pages))
    everywhere = {"--help", "--output", "--columns", "--limit", "--no-headers", "--verbose"}
    wanted = {option for parameter in COMMANDS[name].params for option in parameter.opts if option.startswith("--")}
    assert wanted - everywhere <= named, wanted - everywhere - named


@pytest.mark.parametrize("name", ["kafka-quotas.service", "Containerfile"])
def test_the_unit_and_the_container_file_use_options_that_there_are(name: str) -> None:
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    used = set(re.findall(r"(?<![\w-])--[a-z][\w-]+", text))
    foreign = {"--no-cache-dir", "--prefix", "--from", "--system", "--uid", "--home-dir", "--create-home", "--network"}
    assert used - foreign - {"--interval", "--timeout"} <= options(), used - options()
    assert "--state-file" in used


def test_the_container_file_names_what_there_is() -> None:
    text = (EXAMPLES / "Containerfile").read_text(encoding="utf-8")
    lines = [line for line in text.replace("\\\n", " ").splitlines() if not line.startswith("#")]
    said = [line.partition(" ")[::2] for line in lines if line]
    root = EXAMPLES.parents[1]
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (entry,) = (json.loads(rest) for word, rest in said if word == "ENTRYPOINT")
    assert entry[0] in project["scripts"]
    assert entry[1:3] == ["daemon", "run"]
    extras = re.findall(r'pip install .*"\.\[(\w+)\]"', text)
    assert extras
    assert set(extras) <= project["optional-dependencies"].keys()
    (port,) = re.findall(r"http://127\.0\.0\.1:(\d+)/healthz", text)
    assert entry[entry.index("--metrics-port") + 1] == f"0.0.0.0:{port}"
    (exposed,) = (rest.split() for word, rest in said if word == "EXPOSE")
    assert port in exposed
    (volume,) = (rest for word, rest in said if word == "VOLUME")
    kept = [
        entry[entry.index(option) + 1].removeprefix("local:") for option in ("--control", "--state-file", "--store")
    ]
    assert all(path.startswith(f"{volume}/") for path in kept)
    assert f"-f {(EXAMPLES / 'Containerfile').relative_to(root)}" in text
    images = {rest.split()[0] for word, rest in said if word == "FROM"}
    (version,) = {image.rpartition(":")[2].removesuffix("-slim") for image in images}
    assert project["requires-python"] == f">={version}"
    assert "not built by any test" in text


def test_the_unit_is_one_that_systemd_reads() -> None:
    sections: dict[str, dict[str, str]] = {}
    text = (EXAMPLES / "kafka-quotas.service").read_text(encoding="utf-8").replace("\\\n", " ")
    section: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("["):
            section = sections.setdefault(line.strip("[]"), {})
        elif line and not line.startswith("#"):
            key, _, value = line.partition("=")
            section[key] = value
    assert set(sections) == {"Unit", "Service", "Install"}
    assert "daemon run" in sections["Service"]["ExecStart"]
    assert "daemon reload" in sections["Service"]["ExecReload"]
    assert int(sections["Service"]["TimeoutStopSec"]) > 20  # longer than the drain
