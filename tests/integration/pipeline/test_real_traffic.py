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
from kafka_quotas.loadtest.plan.workload import NO_LOAD, Stage, parse_offered_rate
from kafka_quotas.loadtest.scenario.model import ScenarioClient
from kafka_quotas.loadtest.verdict.analysis import warnings
from kafka_quotas.pipeline.tables.schemas import EVENTS

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(java() is None, reason="Kafka's broker needs Java, and there is none here"),
    pytest.mark.measuring,
    pytest.mark.timeout(600),
]
THROTTLED = "nightly-export"
_ATTEMPTS = 3
"""A log's stamps are those of threads that waited for a core: a replay of such a log says nothing about the replay."""


def recorded_by_a_machine_with_time(folder: Path) -> Recording:
    """Record the demo's traffic in a run in which, by its own figures, no thread waited for a core."""
    shipped = read_scenario(SCENARIO)
    entities = tuple(_after_a_pause(each) if each.client_id == THROTTLED else each for each in shipped.entities)
    scenario = replace(shipped, entities=entities, duration_s=12.0)
    for attempt in range(_ATTEMPTS):
        out = folder / str(attempt)
        out.mkdir()
        traffic, result = record_traffic(scenario, java=find_java(), jars=jars(KAFKA_4), out=out, watcher=None)
        assert not result.interrupted
        doubts = warnings(result)
        if not doubts:
            return traffic
    pytest.skip(f"the machine was too busy to record traffic {_ATTEMPTS} times: {doubts[0]}")


def _after_a_pause(client: ScenarioClient) -> ScenarioClient:
    """Let a client send a little, wait for longer than the quota window, then send all it can in large requests.

    A broker charges a client's first request before it makes the client's sensors, which takes a cold one up to 50 ms,
    and all samples follow from there: one request of a burst on the other side of a sample's end changes the throttle
    times by a tenth. After a pause the samples begin anew, at a request that is charged when its stamp says.
    """
    little, all_it_can = parse_offered_rate("100kB/s"), parse_offered_rate("8MB/s")
    moves = ((0.5, little), (0.0, NO_LOAD), (4.0, NO_LOAD), (0.0, all_it_can))
    stages = tuple(Stage(duration_s=duration_s, target=target) for duration_s, target in moves)
    return replace(client, batch_bytes=300_000, rate=little, stages=stages)


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
    assert named == ("produce", THROTTLED, 1_500_000), err
    assert bucket["observed_throttle_ms"] > 1000
    assert (code, bucket["verdict"]) == (0, "met"), json.dumps(bucket)
