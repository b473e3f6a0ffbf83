"""A real broker's own request log under load and a known quota: read, and replayed to what the broker did."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.brokers.java_process import java
from tests.support.brokers.maven import KAFKA_4, jars
from tests.support.pipeline.logs import table_rows
from tests.support.processes.run_cli import run_cli

from kafka_quotas.cli.demos.pipeline import SCENARIO, Recording, record_traffic
from kafka_quotas.core.extras import find_java
from kafka_quotas.loadtest import read_scenario
from kafka_quotas.loadtest.verdict.analysis import warnings
from kafka_quotas.pipeline.tables.schemas import EVENTS

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(java() is None, reason="Kafka's broker needs Java, and there is none here"),
    pytest.mark.measuring,
    pytest.mark.timeout(600),
]
_ATTEMPTS = 3
"""A log's stamps are those of threads that waited for a core: a replay of such a log says nothing about the replay."""


def recorded_by_a_machine_with_time(folder: Path) -> Recording:
    """Record the demo's traffic in a run in which, by its own figures, no thread waited for a core."""
    scenario = replace(read_scenario(SCENARIO), duration_s=6.0)
    for attempt in range(_ATTEMPTS):
        out = folder / str(attempt)
        out.mkdir()
        traffic, result = record_traffic(scenario, java=find_java(), jars=jars(KAFKA_4), out=out, watcher=None)
        assert not result.interrupted
        doubts = warnings(result)
        if not doubts:
            return traffic
    pytest.skip(f"the machine was too busy to record traffic {_ATTEMPTS} times: {doubts[0]}")


def test_the_replay_of_a_brokers_log_throttles_whom_the_broker_throttled(tmp_path: Path) -> None:
    traffic = recorded_by_a_machine_with_time(tmp_path)
    data, source = tmp_path / "data", f"{traffic.logs}/{{broker_id}}/*.log"
    code, _, err = run_cli("pipeline", "ingest", "--source", source, "--timezone", "UTC", "--out", str(data))
    assert code == 0, err
    events = table_rows(data, EVENTS)
    charged = Counter(each["client_id"] for each in events if each["quota_type"] in ("produce", "fetch"))
    assert set(charged) == {each.client_id for each in read_scenario(SCENARIO).entities}, (
        "all clients, and not who filled a topic"
    )
    windows = ("--quota-window-num", "3", "--quota-window-size-seconds", "1")
    code, out, err = run_cli(
        "pipeline", "validate", str(data), "--quotas", str(traffic.in_force), *windows, "-o", "json"
    )
    (bucket,) = json.loads(out)["buckets"]
    named = (bucket["quota_type"], bucket["client_id"], bucket["limit"])
    assert named == ("produce", "nightly-export", 1_500_000), err
    assert bucket["observed_throttle_ms"] > 1000
    assert (code, bucket["verdict"]) == (0, "met"), bucket
