"""Logs and data in an object store: the local engine on a real S3 gateway finds what it finds in a local folder.

Spark's engine works on it in `test_engines.py`.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from deltalake import DeltaTable
from tests.support.brokers.maven import MissingServerError
from tests.support.pipeline.logs import ROOT, SAMPLES
from tests.support.pipeline.s3_gateway import BUCKET, s3_gateway, upload

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.pipeline.engine.events import EventsRequest, recorded_span
from kafka_quotas.pipeline.engine.spark_settings import SparkSettings
from kafka_quotas.pipeline.tables.lake import Lake
from kafka_quotas.pipeline.tables.packed_events import PackedEvents
from kafka_quotas.pipeline.tables.schemas import PACKED_EVENTS

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1800)]
_TIMEOUT_S = 900
_URL = f"s3a://{BUCKET}"
_HERE = ("--source", "examples/request-log/{broker_id}/*.gz", "--timezone", "UTC")
_THERE = ("--source", f"{_URL}/logs/{{broker_id}}/*", "--timezone", "UTC")
_QUOTAS = ("--quotas", "examples/request-log/quotas.yaml", "--quota-window-num", "3")
_LOCAL = ("--engine", "local")
_TABLES = {"usage": ("usage", "usage_profile"), "replay": ("whatif",)}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The variables by which programs find the gateway, which has the sample logs."""
    try:
        with s3_gateway(tmp_path_factory.mktemp("s3")) as variables:
            for broker_id, log in SAMPLES.items():
                upload(variables, log, f"logs/{broker_id}/{log.name}")
            yield variables
    except MissingServerError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def ingested(store: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A local folder of sample logs with the results of its jobs.

    The bucket has the same data, by the local engine.
    """
    folder = tmp_path_factory.mktemp("local")
    ingest = ("pipeline", "ingest", *_THERE, "--out", f"{_URL}/data", *_LOCAL)
    run(store, *ingest_and_jobs(str(folder), _LOCAL, logs=_HERE), ingest)
    return folder


def ingest_and_jobs(
    out: str, engine: tuple[str, ...], *, data: str | None = None, logs: tuple[str, ...] = _THERE
) -> list[tuple[str, ...]]:
    """An ingest unless there is data, the usage, and a replay."""
    found = data or f"{out}/data"
    ingest = () if data else (("pipeline", "ingest", *logs, "--out", found, *engine),)
    jobs = (("pipeline", job, found, *_QUOTAS, "--out", f"{out}/{job}", *engine) for job in _TABLES)
    return [*ingest, *jobs]


def run(store: dict[str, str], *series: tuple[str, ...]) -> str:
    """What commands put on standard output one after the other, all of which must end well."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.processes.command_series", *(json.dumps(each) for each in series)],
        cwd=ROOT,
        env={**os.environ, **store},
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def rows(place: Path | str, store: dict[str, str]) -> list[dict[str, Any]]:
    found = DeltaTable(place, storage_options=store) if isinstance(place, str) else DeltaTable(place)
    table = found.to_pyarrow_table().drop_columns(["run_id"])
    ordered: list[dict[str, Any]] = sorted(table.to_pylist(), key=repr)
    return ordered


def test_the_local_engine_reads_and_writes_a_bucket(store: dict[str, str], ingested: Path) -> None:
    out = f"{_URL}/here"
    told = run(
        store,
        *ingest_and_jobs(out, _LOCAL, data=f"{_URL}/data"),
        ("pipeline", "ingest", *_THERE, "--out", f"{_URL}/data", *_LOCAL),
    )
    assert f"nothing new for {_URL}/data" in told
    for job, tables in _TABLES.items():
        for table in tables:
            expected = rows(ingested / job / table, store)
            assert expected
            assert rows(f"s3://{BUCKET}/here/{job}/{table}", store) == expected, table


def test_a_store_that_only_sparks_configuration_knows_is_read_without_spark(
    store: dict[str, str], ingested: Path, tmp_path: Path
) -> None:
    known = {
        "endpoint": store["AWS_ENDPOINT_URL"].removeprefix("http://"),
        "connection.ssl.enabled": "false",
        "endpoint.region": store["AWS_REGION"],
        "access.key": store["AWS_ACCESS_KEY_ID"],
        "secret.key": store["AWS_SECRET_ACCESS_KEY"],
    }
    properties = {f"spark.hadoop.fs.s3a.{name}": text for name, text in known.items()}
    file = "".join(f"{name}  {text}\n" for name, text in properties.items())
    (tmp_path / "spark-defaults.conf").write_text(f"# of a cluster\n{file}", encoding="utf-8")
    settings = SparkSettings(log_file=tmp_path / "spark.log")
    given = replace(settings, properties=properties)
    times_ms = [
        time
        for row in PackedEvents(Lake.of(str(ingested / "data"))).table(["ts_ms"])["ts_ms"].to_pylist()
        for time in row
    ]
    with without(store):
        span = recorded_span(EventsRequest(data=f"{_URL}/data", spark=given))
    with without(store):
        os.environ["SPARK_CONF_DIR"] = str(tmp_path)
        known = recorded_span(EventsRequest(data=f"{_URL}/data", spark=settings))
    assert span == known == (min(times_ms), max(times_ms))


@contextmanager
def without(variables: Iterable[str]) -> Iterator[None]:
    """An environment that lacks variables, and is what it was afterwards."""
    with mock.patch.dict(os.environ):
        for name in variables:
            os.environ.pop(name, None)
        yield


@pytest.mark.parametrize(
    ("changed", "bucket", "said", "hint"),
    [
        ({}, "none", r"The specified bucket does not exist \(NoSuchBucket\)", "make the bucket"),
        (
            {"AWS_SECRET_ACCESS_KEY": "no"},
            BUCKET,
            r"does not match .* \(SignatureDoesNotMatch\)",
            "check AWS_ACCESS_KEY",
        ),
        ({"AWS_ALLOW_HTTP": "false"}, BUCKET, "URL scheme is not allowed", "AWS_ALLOW_HTTP=true"),
    ],
)
def test_what_a_store_refuses_is_said_in_one_line(
    store: dict[str, str], monkeypatch: pytest.MonkeyPatch, changed: dict[str, str], bucket: str, said: str, hint: str
) -> None:
    for name, value in (store | changed).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(KafkaQuotasError, match=f"^reading s3a://{bucket}/lake/events failed: .*{said}$") as caught:
        Lake.of(f"s3a://{bucket}/lake").table(PACKED_EVENTS)
    assert (caught.value.hint or "").startswith(hint)
