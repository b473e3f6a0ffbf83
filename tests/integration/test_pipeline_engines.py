"""Spark's ways to run an ingest, each with a real server, against the local engine: the same rows."""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from tests.support.java_process import java
from tests.support.pipeline_logs import SAMPLE_LINES, log_text, table_rows
from tests.support.spark_servers import spark_cluster, spark_connect

from kafka_quotas.pipeline.schemas import CLIENT_THROTTLE, EVENTS, METRICS, QUARANTINE

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(java() is None, reason="Spark needs Java, and there is none here"),
    pytest.mark.timeout(900),
]
_TIMEOUT_S = 600


def ingest(folder: Path, out: Path, *arguments: str) -> str:
    """What an installed command says on standard error, which ingests logs of all kinds."""
    command = [sys.executable, "-m", "kafka_quotas", "pipeline", "ingest", "--out", str(out), "--timezone", "UTC"]
    sources = ["--source", "examples/request-log/{broker_id}/*.gz", "--source", f"{folder}/logs/{{broker_id}}/*"]
    done = subprocess.run(
        [*command, *sources, *arguments],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
        env={name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))},
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize("server", [spark_cluster, spark_connect], ids=["standalone", "connect"])
def test_an_ingest_on_spark_gives_the_rows_of_the_local_engine(
    tmp_path: Path, server: Callable[[Path], AbstractContextManager[str]]
) -> None:
    logs = tmp_path / "logs" / "3"
    logs.mkdir(parents=True)
    (logs / "kafka-request.log").write_text(log_text(50) + "rubbish\n" + log_text(10, first=50)[:-30])
    (logs / "1795262400.prom").write_text('kafka_server_produce_byte_rate{user="u",client_id=""} 5 1795262400000\n')
    (logs / "client.txt").write_text("producer-metrics:produce-throttle-time-avg:{client-id=p} : 12.5\n")
    ingest(tmp_path, tmp_path / "local", "--engine", "local")
    spark_log = tmp_path / "spark.log"
    with server(tmp_path) as master:
        told = ingest(tmp_path, tmp_path / "spark", "--master", master, "--spark-log", str(spark_log))
    assert f"note: engine spark: --master {master} was given" in told
    assert "WARN" not in told  # Spark's own noise is in the log
    for table, least in ((EVENTS, 2 * SAMPLE_LINES + 59), (QUARANTINE, 2), (METRICS, 1), (CLIENT_THROTTLE, 1)):
        rows = table_rows(tmp_path / "spark", table)
        assert len(rows) >= least
        if table is CLIENT_THROTTLE:  # its time is the file's own: the same file, the same time
            assert rows[0]["throttle_ms"] == 12.5
        assert rows == table_rows(tmp_path / "local", table)
