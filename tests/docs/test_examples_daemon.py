"""The daemon's examples: well-formed, about metrics that it serves, with options that it has."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.core import TyperGroup

from kafka_quotas.cli.framework.commands import LazyGroup
from kafka_quotas.cli.main import app

EXAMPLES = Path(__file__).parents[2] / "examples" / "daemon"
PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
QUOTA_TYPES = ("produce", "fetch", "request", "controllermutation", "requestrate")
TOLD = {
    name.replace("TYPE", kind)
    for name in re.findall(r"`(kafka_(?:server|quotas)_\w+|process_\w+)`", PAGE)
    for kind in QUOTA_TYPES
}
DASHBOARD: dict[str, Any] = json.loads((EXAMPLES / "grafana-dashboard.json").read_text(encoding="utf-8"))
ALERTS = yaml.safe_load((EXAMPLES / "prometheus-alerts.yml").read_text(encoding="utf-8"))


NOT_DRAWN = {
    "kafka_quotas_fleet_shared_buckets",
    "kafka_quotas_fleet_published_bytes_total",
    "kafka_quotas_fleet_received_bytes_total",
}


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
            assert names
            assert names <= TOLD, names - TOLD
            drawn |= names
    assert {name for name in TOLD if name.endswith("_queue_size") or "_fleet_" in name or "_worker" in name} <= {
        *drawn,
        *NOT_DRAWN,
    }
    (ready,) = (panel["targets"] for panel in panels if panel["title"] == "Ready to serve")
    assert metrics_in(ready[0]["expr"]) == {"kafka_quotas_ready"}


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
    assert names
    assert names <= TOLD, names - TOLD
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert rule["annotations"]["summary"]


def options() -> set[str]:
    return {name for parameter in COMMANDS["run"].params for name in parameter.opts}


assert isinstance(app, LazyGroup)
GROUP = app.load("daemon")
assert isinstance(GROUP, TyperGroup)
COMMANDS = GROUP.commands


@pytest.mark.parametrize("name", COMMANDS)
def test_the_pages_on_the_daemon_name_every_option(name: str) -> None:
    pages = "".join(
        (EXAMPLES.parents[1] / "docs" / page).read_text(encoding="utf-8")
        for page in (
            "how-to/daemon.md",
            "how-to/fleet.md",
            "reference/daemon.md",
            "reference/decision-api.md",
            "reference/enforcement.md",
            "reference/event-log.md",
            "reference/metrics.md",
        )
    )
    named = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", pages))
    everywhere = {"--help", "--output", "--columns", "--limit", "--no-headers", "--verbose"}
    wanted = {option for parameter in COMMANDS[name].params for option in parameter.opts if option.startswith("--")}
    assert wanted - everywhere <= named, wanted - everywhere - named
