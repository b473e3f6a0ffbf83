"""The examples for Prometheus and Grafana: well-formed, and about metrics that the exporter's rules make."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from kafka_quotas.core.formats.metric_names import BUILT_IN, MetricSample, usages_of
from kafka_quotas.core.resolution.usage import Usage

EXAMPLES = Path(__file__).parents[2] / "examples"
RULES = yaml.safe_load((EXAMPLES / "prometheus" / "jmx-exporter.yml").read_text(encoding="utf-8"))["rules"]
ALERTS = yaml.safe_load((EXAMPLES / "prometheus" / "kafka-quota-alerts.yml").read_text(encoding="utf-8"))
DASHBOARD = json.loads((EXAMPLES / "grafana" / "kafka-client-quotas.json").read_text(encoding="utf-8"))
ATTRIBUTES = ("byte_rate", "request_time", "mutation_rate", "throttle_time", "queue_size", "exempt_request_time")
LABELS = {"resource", "user", "clientId", "instance"}


def exported(bean: str, attribute: str, value: float = 1.0) -> MetricSample | None:
    """What the exporter makes of an attribute by the first rule that fits."""
    for rule in RULES:
        match = re.match(rule["pattern"], f"{bean}<>{attribute}")
        if match:

            def filled(text: str, match: re.Match[str] = match) -> str:
                return re.sub(r"\$(\d)", lambda group: match[int(group[1])], text)

            labels = {name: filled(text) for name, text in rule["labels"].items()}
            return MetricSample(name=filled(rule["name"]).replace("-", "_").lower(), labels=labels, value=value)
    return None


@pytest.mark.parametrize(
    ("tags", "user", "client_id"),
    [
        (", user=alice, client-id=app", "alice", "app"),
        (", user=alice", "alice", ""),
        (", client-id=app", "", "app"),
        (", user=, client-id=app", "", "app"),
    ],
)
def test_the_exporters_rules_keep_what_top_reads(tags: str, user: str, client_id: str) -> None:
    bean = f"kafka.server<type=Produce{tags}>"
    samples = [exported(bean, "byte-rate", 5.0), exported(bean, "throttle-time", 7.0)]
    found = usages_of([sample for sample in samples if sample], names=BUILT_IN, broker="b")
    assert found == [
        Usage(broker="b", key="producer_byte_rate", user=user, client_id=client_id, observed=5.0, throttle_ms=7.0)
    ]


def test_figures_of_a_whole_quota_type_are_exported_too() -> None:
    sample = exported("kafka.server<type=Request>", "exempt-request-time")
    assert sample is not None
    assert (sample.name, sample.labels) == ("kafka_server_quota_exempt_request_time", {"resource": "Request"})


def expressions() -> list[str]:
    alerts = [rule["expr"] for group in ALERTS["groups"] for rule in group["rules"]]
    panels = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    return [*alerts, *panels]


@pytest.mark.parametrize("expression", expressions())
def test_expressions_name_metrics_and_labels_that_exist(expression: str) -> None:
    names = re.findall(r"kafka_server_quota_(\w+)", expression)
    assert names
    assert set(names) <= set(ATTRIBUTES)
    assert set(re.findall(r"(\w+)=~?\"", expression)) <= LABELS
    for grouping in re.findall(r"by \(([^)]*)\)", expression):
        assert {label.strip() for label in grouping.split(",")} <= LABELS
    assert expression.count("(") == expression.count(")")
    assert expression.count("{") == expression.count("}")


def test_every_alert_says_what_it_means() -> None:
    for group in ALERTS["groups"]:
        for rule in group["rules"]:
            assert rule["for"]
            assert rule["labels"]["severity"] in {"info", "warning", "critical"}
            assert set(rule["annotations"]) == {"summary", "description"}


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids) == 12
    for panel in DASHBOARD["panels"]:
        place: dict[str, Any] = panel["gridPos"]
        cells = {(place["x"] + dx, place["y"] + dy) for dx in range(place["w"]) for dy in range(place["h"])}
        assert not taken & cells
        assert panel["title"]
        assert panel["description"]
        taken |= cells
