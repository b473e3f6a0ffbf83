"""Spark sessions (local, on a cluster, or at a Connect server), and Spark's errors in one line.

Contract: the output of Spark and its Java goes to a log file. Executors receive the package as an archive and need not
have it installed. The session is stopped at the end, also after Ctrl-C.

Where memory or a disk is short, Spark often reports what broke after it: a stopped context, a null pointer of its own,
a connection that nobody answers. The log of its Java then has the cause.
"""

import os
import re
import socket
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit
from xml.sax.saxutils import escape

from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.core.extras import find_java
from kafka_quotas.pipeline.engine.job import LIBRARIES_OF_EXECUTORS, JobProgress, Watch, require_libraries
from kafka_quotas.pipeline.engine.spark_settings import (
    JAVA_OPTIONS,
    SparkSettings,
    connect_properties,
    object_store_variables,
    shipped_environment,
    spark_properties,
    worker_environment,
)
from kafka_quotas.pipeline.tables.lake import hint_of, is_full

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PY4J: Final = "An error occurred while calling"
_NETWORK: Final = "Py4JNetworkError"
_NO_ANSWER: Final = "does not exist in the JVM"
"""What py4j says of its own classes once Java is gone."""
_MARKS: Final = ("Error: ", "Exception: ")
_ALONE: Final = re.compile(r"[A-Za-z_][\w.]*(Error|Exception)")
"""A Python error without a message."""
_CAUSED: Final = "Caused by: "
_OF_JAVA: Final = ("org.", "java.", "scala.", "software.", "com.", "io.", _CAUSED, PY4J)
_LONGEST: Final = 300
_MEMORY: Final = re.compile(
    r"(?:OutOfMemoryError|OutOfDirectMemoryError|OutOfMemoryException): (?P<which>[^\n(]*[^\n(.: ])"
    r"|(?P<overhead>GC overhead limit exceeded)|OutOf(?:Direct)?Memory"
)
_LOGGED: Final = re.compile(
    r"(?: ERROR [^\n]*\n(?![^\n]* WARN )|Exception in thread )[^\n]*OutOf(?:Direct)?Memory[^\n]*"
)
"""An error of Spark's Java itself: those of executors elsewhere, whose tasks run again, are warnings in its log."""
_EXECUTOR: Final = re.compile(r"\(\S+ executor \d+\): [^\n]*(?:OutOf\w*Memory|GC overhead)")
"""A task that failed in an executor of a cluster, which the driver of a local session is not."""
_PYTHON_MEMORY: Final = (
    "fewer tasks at a time leave each more: --master local[1], on a cluster fewer spark.executor.cores or more "
    "spark.executor.memoryOverhead by --spark-conf"
)
_FAILURES: Final = (
    (
        r"(results? of \d+ tasks? \([^)]*\)) is bigger than (?:spark\.driver\.maxResultSize|local\S*)",
        r"the \1 are more than spark.driver.maxResultSize",
        "--spark-conf spark.driver.maxResultSize=2g allows more, which spark.driver.memory must hold",
    ),
    (
        r"ExecutorLostFailure[^\n]*code:? 52\b",
        "an executor's Java ran out of memory",
        "give executors more: --spark-conf spark.executor.memory=4g",
    ),
    (
        r"ExecutorLostFailure[^\n]*(?:code:? 137\b|memory limits|OOMKilled|physical memory)",
        "an executor was killed, as systems do where memory is short",
        "--spark-conf spark.executor.memoryOverhead=1g gives its Python workers more, fewer spark.executor.cores too",
    ),
    (
        r"ExecutorLostFailure \([^)]*\) Reason: ([^\n]*)",
        r"an executor was lost: \1",
        "its own log, on its machine, says more",
    ),
    (
        r"Python worker exited unexpectedly",
        "a Python worker was killed or crashed, as where memory is short",
        _PYTHON_MEMORY,
    ),
    (r"(?m)^\S*MemoryError\b", "a Python worker ran out of memory", _PYTHON_MEMORY),
)


@contextmanager
def spark_errors(doing: str, *, log_file: Path) -> Iterator[None]:
    """Convert Spark's errors in the block to a `KafkaQuotasError` that names the operation."""
    begin = log_file.stat().st_size if log_file.exists() else 0
    try:
        yield
    except (KafkaQuotasError, KeyboardInterrupt):
        raise
    except Exception as error:  # py4j's, gRPC's and Spark's own, of many classes
        if is_full(error):
            raise KafkaQuotasError(
                f"no room left while {doing}", hint="nothing was changed; make room, also for Spark's spark.local.dir"
            ) from error
        why, hint = failure_of(error, written_after(log_file, begin))
        hint = "; ".join(filter(None, (hint, f"see {log_file}")))
        raise KafkaQuotasError(f"Spark failed while {doing}: {why}", hint=hint) from error


def written_after(log_file: Path, begin: int) -> str:
    """Return what was written to a log after its first `begin` bytes, an empty text where there is no log."""
    if not log_file.exists():
        return ""
    with log_file.open("rb") as file:
        file.seek(begin)
        return file.read().decode(errors="replace")


def failure_of(error: Exception, logged: str) -> tuple[str, str | None]:
    """Return the cause of an error of Spark's, and what helps, None if nothing is known.

    `logged` is what Spark's Java logged meanwhile.
    """
    text, memory = str(error), _LOGGED.search(logged)
    short = next((each for each in (text, memory[0] if memory else "") if _MEMORY.search(each)), "")
    if found := _MEMORY.search(short):
        which = found["which"] or found["overhead"]
        whose, setting = "its", "--spark-conf spark.driver.memory=4g"
        if _EXECUTOR.search(text):
            whose, setting = "an executor's", "--spark-conf spark.executor.memory=4g"
        shown = f" ({which.strip()})" if which else ""
        return f"{whose} Java ran out of memory{shown}", f"give it more: {setting}"
    for words, why, hint in _FAILURES:
        if match := re.search(words, text):
            return match.expand(why)[:_LONGEST], hint
    is_gone = isinstance(error, ConnectionError) or type(error).__name__ == _NETWORK or _NO_ANSWER in text
    why = "its Java ended" if is_gone else _cause(error)
    return why, hint_of(why)


def _cause(error: Exception) -> str:
    """Return the last error of a Python worker, else the innermost cause, else the first line.

    What is indented are calls, and errors that Java met while it handled the one that counts.
    """
    lines = [line.rstrip() for line in str(error).splitlines() if line.strip() and not line[0].isspace()]
    named = [line.strip(": ") for line in lines if _ALONE.fullmatch(line) or any(mark in line for mark in _MARKS)]
    python = [line for line in named if not line.startswith((*_OF_JAVA, "at "))]
    inner = [line.removeprefix(_CAUSED) for line in lines if line.startswith(_CAUSED)]
    first = [line.strip(": ") for line in lines if not line.startswith(PY4J)]
    return next((each[-1] for each in (python, inner, first[:1]) if each), type(error).__name__)[:_LONGEST]


_APP_NAME: Final = "kafka-quotas"
_CONNECT_PORT: Final = 15002
_JAVA_ENDED: Final = 'Exception in thread "main" '
_NO_HEAP: Final = re.compile(r"^(Invalid maximum heap size|Could not reserve enough space).*", re.MULTILINE)
"""What Java says of a heap that it can't have, before it runs anything."""
_PACKAGES: Final = "spark.jars.packages"
_CLASS_PATH: Final = "spark.driver.extraClassPath"
_MAGIC_BYTES: Final = 4
_PROBE_TIMEOUT_S: Final = 5.0
_CENTRAL: Final = "https://repo1.maven.org/maven2/"
_IVY_SETTINGS: Final = (
    '<ivysettings><settings defaultResolver="central"/><resolvers>'
    '<ibiblio name="central" m2compatible="true" usepoms="true" root="{}"/></resolvers></ivysettings>\n'
)
_JARS: Final = (
    "where its jars can't be fetched, --spark-conf spark.jars names those that are there, spark.jars.packages other "
    "versions, spark.jars.ivySettings where to ask besides Maven Central"
)


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
        session = _connect(settings, Path(folder)) if settings.is_connect else _start(settings, Path(folder))
        try:
            if not settings.is_local:
                with spark_errors("asking an executor for its libraries", log_file=settings.log_file):
                    require_on_executors(session, LIBRARIES_OF_EXECUTORS)
            yield session
        finally:
            with suppress(Exception):  # Java may be gone, and whoever needed it has said so
                session.stop()


def require_on_executors(session: "SparkSession", names: Sequence[str]) -> None:
    """Check that an executor has libraries, before the first stage of a job fails in each of its tasks."""
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


def started(settings: SparkSettings, watch: Watch, stack: ExitStack) -> "SparkSession":
    """Start a session, which stops with a stack."""
    watch(JobProgress(stage="start Spark", done=0, total=0))
    return stack.enter_context(spark_session(settings))


def write_package_archive(folder: Path) -> Path:
    """Write a zip file with every Python module of the package to `folder` and return its path."""
    root = Path(str(files("kafka_quotas")))
    archive = folder / "kafka_quotas.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        for module in sorted(root.rglob("*.py")):
            file.write(module, module.relative_to(root.parent))
    return archive


def write_ivy_settings(folder: Path, environment: Mapping[str, str] = os.environ) -> Path:
    """Write a file by which Ivy asks Central alone, and return its path.

    Spark's own settings ask `~/.m2` first, and fail if that has a `pom` without its jar, as Maven leaves some there.
    """
    root = escape(environment.get("DEFAULT_ARTIFACT_REPOSITORY", _CENTRAL), {'"': "&quot;"})
    file = folder / "ivysettings.xml"
    file.write_text(_IVY_SETTINGS.format(root), encoding="utf-8")
    return file


def known_jars(properties: Mapping[str, str], java: Path, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the file in the user's cache for the jars that a session with some properties has."""
    own = sorted(each for each in properties.items() if each[0].startswith(("spark.jars", _CLASS_PATH)))
    installed = (java.resolve(), Path(str(files("pyspark")), "jars"))
    known = [*((str(each), each.stat().st_mtime_ns) for each in installed if each.exists()), *own]
    cache = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "kafka-quotas" / f"spark-{sha256(repr(known).encode()).hexdigest()[:16]}.jars"


def with_known_jars(properties: Mapping[str, str], known: Path) -> dict[str, str]:
    """Return the properties, with the jars of an earlier session in place of packages if all are there.

    A first session fetches jars by Ivy. A second has them on its class path, and its Java leaves an archive of its
    classes when it ends, half as long again later. Later ones have their classes from there: a command of 19 s takes
    14. Java itself refuses an archive of other jars, and writes the first bytes of one last.

    Source: https://docs.oracle.com/en/java/javase/17/vm/class-data-sharing.html, dynamic archives.
    """
    jars, head = list[str](), b""  # what can't be read saves no time, and that is all
    with suppress(OSError):
        jars = known.read_text(encoding="utf-8").splitlines()
    if not jars or not all(Path(each).is_file() for each in jars):
        return dict(properties)
    archive = known.with_suffix(".jsa")
    with suppress(OSError), archive.open("rb") as file:
        head = file.read(_MAGIC_BYTES)
    option = "SharedArchiveFile" if any(head) else "ArchiveClassesAtExit"
    found = {name: value for name, value in properties.items() if not name.startswith("spark.jars")}
    return found | {
        _CLASS_PATH: os.pathsep.join(filter(None, (found.get(_CLASS_PATH), *jars))),
        JAVA_OPTIONS: " ".join(filter(None, (found.get(JAVA_OPTIONS), f'"-XX:{option}={archive}"'))),
    }


def keep_jars(known: Path, jars: str) -> None:
    """Keep the jars of a session, as it names them, for later ones."""
    with suppress(OSError):
        known.parent.mkdir(parents=True, exist_ok=True)
        known.write_text("\n".join(urlsplit(each).path for each in jars.split(",")), encoding="utf-8")
        known.with_suffix(".jsa").unlink(missing_ok=True)


def _start(settings: SparkSettings, folder: Path) -> "SparkSession":
    from pyspark.sql import SparkSession  # noqa: PLC0415

    java = find_java()
    os.environ.update(worker_environment(settings))
    os.environ.setdefault("JAVA_HOME", str(java.resolve().parent.parent))
    if settings.master.startswith("spark://"):
        _probe(settings.master, default_port=7077)
    properties: dict[str, Any] = spark_properties(settings)
    known = known_jars(properties, java) if settings.is_local and settings.is_short else None
    if known is not None:
        properties = with_known_jars(properties, known)
    if _PACKAGES in properties:
        properties.setdefault("spark.jars.ivySettings", str(write_ivy_settings(folder)))
    begin = settings.log_file.stat().st_size if settings.log_file.exists() else 0
    try:
        _launch_java({**properties, "spark.master": settings.master}, settings.log_file)
        builder = SparkSession.builder.master(settings.master).appName(_APP_NAME)
        session = builder.config(map=properties).getOrCreate()
    except Exception as error:  # py4j's and Spark's own, of many classes
        why = _why_java_ended(settings.log_file, begin) or _cause(error)
        raise KafkaQuotasError(
            f"Spark did not start on {settings.master}: {why}",
            hint=f"see {settings.log_file}; {hint_of(why) or _JARS}",
        ) from error
    if known is not None and _PACKAGES in properties:
        keep_jars(known, session.conf.get("spark.jars", None) or "")
    java_session: Any = session._jsparkSession  # noqa: SLF001 - has no other door
    for name, value in object_store_variables(java_session.sessionState().newHadoopConf().get).items():
        os.environ.setdefault(name, value)
    if not settings.is_local:  # local workers have the package, with its kernels compiled before
        session.sparkContext.addPyFile(str(write_package_archive(folder)))
    return session


def _connect(settings: SparkSettings, folder: Path) -> "SparkSession":
    from pyspark.sql import SparkSession  # noqa: PLC0415

    _probe(settings.master, default_port=_CONNECT_PORT)
    try:
        session = SparkSession.builder.remote(settings.master).appName(_APP_NAME).getOrCreate()
        for name, value in connect_properties(settings).items():
            session.conf.set(name, value)
        session.addArtifacts(str(write_package_archive(folder)), pyfile=True)
        if settings.env_archive is not None:
            session.addArtifacts(shipped_environment(settings.env_archive), archive=True)
    except Exception as error:  # gRPC's and Spark's own, of many classes
        raise KafkaQuotasError(f"no session at {settings.master}: {_cause(error)}") from error
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


def _launch_java(properties: Mapping[str, str], log_file: Path) -> None:
    """Start Java unless this process has one, with its output and that of its workers in a log."""
    from pyspark import SparkConf, SparkContext, java_gateway  # noqa: PLC0415

    launch: Any = java_gateway.launch_gateway
    if SparkContext._gateway is None:  # noqa: SLF001 - has no other door
        conf = SparkConf().setAll(list(properties.items()))
        with log_file.open("ab") as file:
            gateway = launch(conf, {"stdout": file, "stderr": file})
        SparkContext._ensure_initialized(gateway=gateway, conf=conf)  # noqa: SLF001 - as above


def _why_java_ended(log_file: Path, begin: int) -> str:
    """Return what Java wrote of its end after a byte of the log, an empty text where it runs.

    PySpark itself only says that Java is gone.
    """
    text = written_after(log_file, begin)
    exception = text.rpartition(_JAVA_ENDED)[2].partition("\n")[0] if _JAVA_ENDED in text else ""
    heap = _NO_HEAP.search(text)
    return exception.partition(": ")[2].strip("[]") or exception or (heap[0] if heap else "")
