"""Scrapes of brokers, statistics of clients and results of load tests into metrics and client_throttle."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.pipeline.logs import table_rows
from tests.support.processes.run_cli import run_cli

from kafka_quotas.core.errors import UsageError
from kafka_quotas.pipeline.formats.task import InputFormat, detect_format
from kafka_quotas.pipeline.ingest.sources import find_files
from kafka_quotas.pipeline.tables.schemas import CLIENT_THROTTLE, METRICS

AT_MS = 1_795_262_400_000
EXPORTER = """# HELP kafka_server_quota_byte_rate Attribute exposed for management
# TYPE kafka_server_quota_byte_rate gauge
kafka_server_quota_byte_rate{resource="Produce",user="al%20ice",clientId="",} 1048576.5
kafka_server_quota_throttle_time{resource="Produce",user="al%20ice",clientId="",} 120.0
kafka_server_quota_byte_rate{resource="Fetch",user="bob",clientId="",} NaN
jvm_threads_current 44
"""
BY_TYPE = 'kafka_server_Produce_byte_rate{user="bob",client_id="app"} 7.0 1795262401000\n'
PROMETHEUS_ANSWER = json.dumps(
    {
        "status": "success",
        "data": {
            "resultType": "matrix",
            "result": [
                {
                    "metric": {"__name__": "kafka_server_fetch_byte_rate", "user": "u", "broker": "3"},
                    "values": [[AT_MS / 1000, "10"], [AT_MS / 1000 + 15, "20"]],
                }
            ],
        },
    }
)
JOLOKIA = json.dumps(
    {
        "request": {"mbean": "kafka.server:type=Request,user=*", "type": "read"},
        "timestamp": AT_MS // 1000,
        "value": {"kafka.server:type=Request,user=carol": {"request-time": 12.5, "throttle-time": 3.0}},
    },
    indent=1,
)
JSON_LINE = {
    "name": "kafka_server_produce_byte_rate",
    "labels": {"user": "u", "broker": "1"},
    "value": 5,
    "timestamp": AT_MS // 1000,
}
JSON_LINES = f"{json.dumps(JSON_LINE)}\nno JSON\n"
STATS = {
    "name": "rdkafka#producer-1",
    "client_id": "app",
    "type": "producer",
    "ts": 5,
    "time": AT_MS // 1000,
    "brokers": {
        "a:9092/1": {"nodeid": 1, "throttle": {"min": 0, "max": 900, "avg": 300, "sum": 900, "cnt": 3}},
        "b:9092/2": {"nodeid": 2, "throttle": {"min": 0, "max": 0, "avg": 0, "sum": 0, "cnt": 0}},
    },
}
JAVA_PRINTED = """Metric Name                                                            Value
producer-metrics:produce-throttle-time-avg:{client-id=perf-producer-client} : 12.500
producer-metrics:produce-throttle-time-max:{client-id=perf-producer-client} : 80.000
producer-metrics:record-send-total:{client-id=perf-producer-client}         : 1000.000
"""
JAVA_EXPORTED = """# TYPE kafka_consumer_fetch_throttle_time_avg gauge
kafka_consumer_consumer_fetch_manager_metrics_fetch_throttle_time_avg{client_id="reader"} 5.5
kafka_consumer_consumer_fetch_manager_metrics_fetch_throttle_time_max{client_id="reader"} 9.0
"""


def ingest(folder: Path, name: str, text: str, *more: str) -> tuple[dict[str, Any], Path]:
    path = folder / "in" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    argv = ("pipeline", "ingest", "--out", str(folder / "data"), "--engine", "local", "--output", "json")
    code, out, err = run_cli(*argv, *more, "--source", f"{folder}/in/{name.replace('7', '{broker_id}', 1)}")
    assert code == 0, err
    return json.loads(out), folder / "data"


def figures(data: Path) -> list[tuple[Any, ...]]:
    columns = ("ts_ms", "broker", "quota_type", "user", "client_id", "metric", "value")
    return sorted(tuple(row[name] for name in columns) for row in table_rows(data, METRICS))


def throttles(data: Path) -> list[tuple[Any, ...]]:
    columns = ("ts_ms", "client_id", "broker", "throttle_ms", "max_throttle_ms", "samples", "source")
    return [tuple(row[name] for name in columns) for row in table_rows(data, CLIENT_THROTTLE)]


def test_a_scrape_has_the_time_and_the_broker_that_its_path_tells(tmp_path: Path) -> None:
    path = tmp_path / "scrapes" / "7" / "2026-11-21T12_00_00Z.prom"
    path.parent.mkdir(parents=True)
    path.write_text(EXPORTER)
    argv = ("pipeline", "ingest", "--out", str(tmp_path / "data"), "--output", "json")
    code, out, err = run_cli(*argv, "--source", f"{tmp_path}/scrapes/{{broker_id}}/{{time}}.prom")
    assert code == 0, err
    assert figures(tmp_path / "data") == [
        (AT_MS, "7", "produce", "al ice", "", "byte_rate", 1048576.5),
        (AT_MS, "7", "produce", "al ice", "", "throttle_time", 120.0),
    ]
    assert json.loads(out)["unused"] == 2  # NaN is no figure, and threads have nothing to do with quotas


def test_other_names_and_times_of_samples(tmp_path: Path) -> None:
    _, data = ingest(tmp_path, "broker-7.prom", BY_TYPE)
    assert figures(data) == [(AT_MS + 1000, "7", "produce", "bob", "app", "byte_rate", 7.0)]


def test_names_that_only_a_mapping_file_knows(tmp_path: Path) -> None:
    mapping = tmp_path / "names.toml"
    mapping.write_text(
        "[[rule]]\npattern = 'acme_(?P<type>produce|fetch)_(?P<attribute>\\w+)'\n"
        "user_label = 'who'\nclient_id_label = 'app'\n"
    )
    _, data = ingest(
        tmp_path, "7.prom", 'acme_produce_byte_rate{who="u",app="c"} 5 1795262400000\n', "--metric-names", str(mapping)
    )
    assert figures(data) == [(AT_MS, "7", "produce", "u", "c", "byte_rate", 5.0)]


FETCHED = ("3", "fetch", "u", "", "byte_rate")
REQUESTED = (AT_MS, "7", "request", "carol", "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (PROMETHEUS_ANSWER, [(AT_MS, *FETCHED, 10.0), (AT_MS + 15_000, *FETCHED, 20.0)]),
        (JOLOKIA, [(*REQUESTED, "request_time", 12.5), (*REQUESTED, "throttle_time", 3.0)]),
        (JSON_LINES, [(AT_MS, "1", "produce", "u", "", "byte_rate", 5.0)]),
    ],
    ids=["prometheus", "jolokia", "lines"],
)
def test_metrics_as_json(tmp_path: Path, text: str, expected: list[tuple[Any, ...]]) -> None:
    result, data = ingest(tmp_path, "7.json", text)
    assert figures(data) == expected
    assert result["quarantined"] == text.count("no JSON")


def test_statistics_of_librdkafka_tell_each_broker_that_answered(tmp_path: Path) -> None:
    result, data = ingest(tmp_path, "stats.jsonl", json.dumps(STATS) + '\n{"client_id":"x","brokers":[]}\n')
    assert throttles(data) == [(AT_MS, "app", "1", 300.0, 900.0, 3, "librdkafka")]
    assert result["quarantined"] == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (JAVA_PRINTED, ("perf-producer-client", "", 12.5, 80.0, None, "java")),
        (JAVA_EXPORTED, ("reader", "", 5.5, 9.0, None, "java")),
    ],
    ids=["printed", "exported"],
)
def test_metrics_of_java_clients(tmp_path: Path, text: str, expected: tuple[Any, ...]) -> None:
    _, data = ingest(tmp_path, "client.txt", text)
    assert [row[1:] for row in throttles(data)] == [expected]


def test_a_scrape_is_known_again_and_another_of_the_same_content_is_not(tmp_path: Path) -> None:
    assert ingest(tmp_path, "7.prom", BY_TYPE)[0]["metrics"] == 1
    assert ingest(tmp_path, "7.prom", BY_TYPE)[0]["metrics"] == 0
    assert ingest(tmp_path, "8.prom", BY_TYPE)[0]["metrics"] == 1


@pytest.mark.parametrize(
    ("head", "form"),
    [
        (b"[2026-11-21 12:00:00,000] INFO started (kafka.server.KafkaServer)\n", None),
        (b'{"v":1,"ts_ms":5}\n', InputFormat.DAEMON_EVENTS),
        (EXPORTER.encode(), InputFormat.PROMETHEUS),
        (JAVA_PRINTED.encode(), InputFormat.JAVA_CLIENT),
        (json.dumps(STATS).encode(), InputFormat.LIBRDKAFKA_STATS),
        (b'{\n "schema": "kafka-quotas.load-test/3"', InputFormat.LOAD_TEST),
        (b"PAR1\x15\x04", InputFormat.LOAD_TEST),
        (JOLOKIA.encode(), InputFormat.JSON_METRICS),
        (b"Dear diary,\ntoday I\n", None),
        (bytes(range(256)), None),
    ],
)
def test_a_files_form_is_told_by_its_beginning(head: bytes, form: InputFormat | None) -> None:
    assert detect_format(head) is form


@pytest.mark.parametrize(
    ("pattern", "message"),
    [("logs/{broker}/*", "unknown place"), ("no-such-folder/{broker_id}/*", "no file matches")],
)
def test_a_pattern_that_cannot_be_meant(pattern: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        list(find_files(pattern))


def test_a_pattern_takes_folders_and_whatever_is_below_them(tmp_path: Path) -> None:
    for name in ("a/1/x.log", "a/1/deep/y.log", "a/2/.hidden", "a/b/z.log"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "a/3").mkdir()
    found = [(file.path.name, file.broker_id) for file in find_files(f"{tmp_path}/a/{{broker_id}}")]
    assert sorted(found) == [("x.log", 1), ("y.log", 1)]
    deep = [(file.path.name, file.broker_id) for file in find_files(f"{tmp_path}/a/{{broker_id}}/**/*.log")]
    assert sorted(deep) == [("x.log", 1), ("y.log", 1)]
