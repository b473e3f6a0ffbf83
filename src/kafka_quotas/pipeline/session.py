"""Spark sessions: local, on a cluster, or at a Connect server, all by one call.

Contract: what Spark and its Java print goes to a log file; the package is shipped to the executors; the session is
stopped at the end, also after Ctrl-C. Foreign errors leave as `KafkaQuotasError`.
"""

import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.pipeline.java import find_java
from kafka_quotas.pipeline.libraries import require_libraries
from kafka_quotas.pipeline.package_archive import write_package_archive
from kafka_quotas.pipeline.spark_settings import (
    SparkSettings,
    connect_properties,
    shipped_environment,
    spark_properties,
    worker_environment,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_APP_NAME: Final = "kafka-quotas"
_CONNECT_PORT: Final = 15002
_PY4J: Final = "An error occurred while calling"
_PROBE_TIMEOUT_S: Final = 5.0


@contextmanager
def spark_session(settings: SparkSettings) -> "Iterator[SparkSession]":
    """A session for the block, stopped after it.

    Raises `KafkaQuotasError` where PySpark or Java is not there, where nothing answers at the master's address, and
    where Spark does not start; the log file tells more.
    """
    require_libraries("pyspark")
    settings.log_file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="kafka-quotas-") as folder:
        archive = write_package_archive(Path(folder))
        session = _connect(settings, archive) if settings.is_connect else _start(settings, archive)
        try:
            yield session
        finally:
            session.stop()


def _start(settings: SparkSettings, archive: Path) -> "SparkSession":
    from pyspark.sql import SparkSession  # noqa: PLC0415

    java = find_java()
    os.environ.update(worker_environment(settings))
    os.environ.setdefault("JAVA_HOME", str(java.resolve().parent.parent))
    if settings.master.startswith("spark://"):
        _probe(settings.master, default_port=7077)
    builder = SparkSession.builder.master(settings.master).appName(_APP_NAME)
    for name, value in spark_properties(settings).items():
        builder = builder.config(name, value)
    try:
        with _output_to(settings.log_file):
            session = builder.getOrCreate()
    except Exception as error:  # py4j's and Spark's own, of many classes
        raise KafkaQuotasError(
            f"Spark did not start on {settings.master}: {_first_line(error)}", hint=f"see {settings.log_file}"
        ) from error
    if not settings.is_local:  # local workers have the package, with its kernels compiled before
        session.sparkContext.addPyFile(str(archive))
    return session


def _connect(settings: SparkSettings, archive: Path) -> "SparkSession":
    from pyspark.sql import SparkSession  # noqa: PLC0415

    _probe(settings.master, default_port=_CONNECT_PORT)
    try:
        session = SparkSession.builder.remote(settings.master).appName(_APP_NAME).getOrCreate()
        for name, value in connect_properties(settings).items():
            session.conf.set(name, value)
        session.addArtifacts(str(archive), pyfile=True)
        if settings.env_archive is not None:
            session.addArtifacts(shipped_environment(settings.env_archive), archive=True)
    except Exception as error:  # gRPC's and Spark's own, of many classes
        raise KafkaQuotasError(f"no session at {settings.master}: {_first_line(error)}") from error
    return session


def _probe(master: str, *, default_port: int) -> None:
    """Nothing, if something listens at the master's address: Spark's own clients try for minutes where nothing does."""
    first = master.partition(",")[0]
    try:
        url = urlsplit(first)
        host, port = url.hostname, url.port or default_port
    except ValueError as error:
        raise UsageError(f"--master {master} has no valid port") from error
    if host is None:
        raise UsageError(f"--master {master} names no host", hint="spark://HOST:7077, sc://HOST:15002")
    try:
        socket.create_connection((host, port), timeout=_PROBE_TIMEOUT_S).close()
    except OSError as error:
        raise KafkaQuotasError(
            f"nothing answers at {host}:{port} ({error.strerror or error})", hint="is the Spark master up?"
        ) from error


@contextmanager
def _output_to(log_file: Path) -> Iterator[None]:
    """For the block, the process's output goes to a file; what is started meanwhile keeps writing there."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(1), os.dup(2)]
    try:
        with log_file.open("ab") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        yield
    finally:
        for number, copy in zip((1, 2), kept, strict=True):
            os.dup2(copy, number)
            os.close(copy)


def _first_line(error: Exception) -> str:
    """The first line that says what was the matter: py4j's own only says which call it was."""
    lines = [line.strip(": ") for line in str(error).splitlines() if line.strip(": ")]
    return next((line for line in lines if not line.startswith(_PY4J)), type(error).__name__)
