"""Spark sessions: local, on a cluster, or at a Connect server, all by one call.

Contract: the output of Spark and its Java goes to a log file. Executors receive the package as an archive and need not
have it installed. The session is stopped at the end, also after Ctrl-C.
"""

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.pipeline.engine.choice import LIBRARIES_OF_EXECUTORS, require_libraries
from kafka_quotas.pipeline.engine.progress import JobProgress, Watch
from kafka_quotas.pipeline.engine.spark_failures import PY4J, spark_errors, written_after
from kafka_quotas.pipeline.engine.spark_settings import (
    SparkSettings,
    connect_properties,
    object_store_variables,
    shipped_environment,
    spark_properties,
    worker_environment,
)
from kafka_quotas.pipeline.tables.lake import hint_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_APP_NAME: Final = "kafka-quotas"
_CONNECT_PORT: Final = 15002
_JAVA_ENDED: Final = 'Exception in thread "main" '
_NO_HEAP: Final = re.compile(r"^(Invalid maximum heap size|Could not reserve enough space).*", re.MULTILINE)
"""What Java says of a heap that it can't have, before it runs anything."""
_PROBE_TIMEOUT_S: Final = 5.0
_JARS: Final = (
    "where its jars can't be fetched, --spark-conf spark.jars names those that are there, spark.jars.packages other "
    "versions"
)
OLDEST_JAVA: Final = 17
_HINT: Final = (
    f"install Java {OLDEST_JAVA} or 21 (apt install openjdk-{OLDEST_JAVA}-jre-headless) or set JAVA_HOME; "
    "--engine local needs none"
)
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_ANSWER_TIMEOUT_S: Final = 60


@contextmanager
def spark_session(settings: SparkSettings) -> "Iterator[SparkSession]":
    """Start a session for the block, and stop it afterwards.

    Raises:
        KafkaQuotasError: Java is missing, nothing listens at the master's address, Spark does not start, or its
            executors lack a library. The log file has the details.
        UsageError: PySpark is not installed, or the master's address is invalid.
    """
    require_libraries("pyspark")
    settings.log_file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="kafka-quotas-") as folder:
        archive = write_package_archive(Path(folder))
        session = _connect(settings, archive) if settings.is_connect else _start(settings, archive)
        try:
            if not settings.is_local:
                with spark_errors("asking an executor for its libraries", log_file=settings.log_file):
                    require_on_executors(session, LIBRARIES_OF_EXECUTORS)
            yield session
        finally:
            with suppress(Exception):  # Java may be gone, and whoever needed it has said so
                session.stop()


def require_on_executors(session: "SparkSession", names: Sequence[str]) -> None:
    """Check that an executor has libraries, before the first stage of a job fails in each of its tasks.

    Raises:
        KafkaQuotasError: It lacks one.
    """
    from pyspark.sql import functions  # noqa: PLC0415

    def missing(_: int) -> str:
        return ", ".join(name for name in names if find_spec(name) is None)

    asked = session.range(1, numPartitions=1).select(functions.udf(missing, useArrow=False)("id"))
    if found := asked.collect()[0][0]:
        raise KafkaQuotasError(
            f"executors have no {found}",
            hint="--env-archive sends them an environment that venv-pack or conda-pack packed from one with "
            "kafka-quotas[spark]",
        )


class LazySession:
    """A session that starts when it is first needed, and stops with a stack."""

    def __init__(self, settings: SparkSettings, watch: Watch, stack: ExitStack) -> None:
        self.settings = settings
        self._watch = watch
        self._stack = stack
        self._session: SparkSession | None = None

    def __call__(self) -> "SparkSession":
        """Return the session.

        Raises:
            KafkaQuotasError: It does not start.
        """
        if self._session is None:
            self._watch(JobProgress(stage="start Spark", done=0, total=0))
            self._session = self._stack.enter_context(spark_session(self.settings))
        return self._session


def write_package_archive(folder: Path) -> Path:
    """Write a zip file with every Python module of the package to `folder` and return its path."""
    root = Path(str(files("kafka_quotas")))
    archive = folder / "kafka_quotas.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        for module in sorted(root.rglob("*.py")):
            file.write(module, module.relative_to(root.parent))
    return archive


def find_java(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the `java` of JAVA_HOME, else of the PATH, after checking its version.

    Raises:
        KafkaQuotasError: There is none, it does not run, or it is older than Spark 4 needs.
    """
    home = environment.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java", path=environment.get("PATH"))
    if found is None or not Path(found).is_file():
        where = f"JAVA_HOME={home} holds no bin/java" if home else "there is no java on the PATH"
        raise KafkaQuotasError(f"Spark needs Java: {where}", hint=_HINT)
    version = _version_of(found)
    if version < OLDEST_JAVA:
        raise KafkaQuotasError(f"Spark needs Java {OLDEST_JAVA} or later, {found} is {version}", hint=_HINT)
    return Path(found)


def _version_of(java: str) -> int:
    try:
        answer = subprocess.run(  # noqa: S603 - the user's own Java, asked for its version
            [java, "-version"], capture_output=True, text=True, timeout=_ANSWER_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise KafkaQuotasError(f"Spark needs Java: {java} does not run: {error}", hint=_HINT) from error
    match = _VERSION.search(answer.stderr + answer.stdout)
    if match is None:
        raise KafkaQuotasError(f"Spark needs Java: {java} -version shows no version", hint=_HINT)
    return int(match[1])


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
    begin = settings.log_file.stat().st_size if settings.log_file.exists() else 0
    try:
        with _output_to(settings.log_file):
            session = builder.getOrCreate()
    except Exception as error:  # py4j's and Spark's own, of many classes
        why = _why_java_ended(settings.log_file, begin) or _first_line(error)
        raise KafkaQuotasError(
            f"Spark did not start on {settings.master}: {why}",
            hint=f"see {settings.log_file}; {hint_of(why) or _JARS}",
        ) from error
    java_session: Any = session._jsparkSession  # noqa: SLF001 - has no other door
    for name, value in object_store_variables(java_session.sessionState().newHadoopConf().get).items():
        os.environ.setdefault(name, value)
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
    """Check that something listens at the master's address: Spark's own clients retry for minutes."""
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
    """Redirect the process's output to a file for the block.

    Child processes that start in the block keep writing there.
    """
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


def _why_java_ended(log_file: Path, begin: int) -> str:
    """Return what Java wrote of its end after a byte of the log, an empty text where it runs.

    PySpark itself only says that Java is gone.
    """
    text = written_after(log_file, begin)
    exception = text.rpartition(_JAVA_ENDED)[2].partition("\n")[0] if _JAVA_ENDED in text else ""
    heap = _NO_HEAP.search(text)
    return exception.partition(": ")[2].strip("[]") or exception or (heap[0] if heap else "")


def _first_line(error: Exception) -> str:
    """Return the first line with the cause: py4j's own only names the call."""
    lines = [line.strip(": ") for line in str(error).splitlines() if line.strip(": ")]
    return next((line for line in lines if not line.startswith(PY4J)), type(error).__name__)
