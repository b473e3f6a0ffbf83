"""Spark's own servers on this machine: a standalone cluster, and a Connect server."""

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from unittest import mock

import pyspark
from tests.support.brokers.java_process import QUICK_START, JavaServer, free_port

from kafka_quotas.pipeline.engine.spark_settings import SparkSettings, spark_properties

SPARK_HOME = Path(pyspark.__file__).parent
_OPENED = (
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util"),
    *("java.util.concurrent", "java.util.concurrent.atomic", "sun.nio.ch", "sun.nio.cs", "sun.security.action"),
    "sun.util.calendar",
)
"""What Spark's own scripts open to it."""
DELTA = ("spark.jars.packages", "spark.sql.extensions", "spark.sql.catalog.spark_catalog")
"""What a Connect server needs to know Delta tables."""
_OPTIONS = [
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
    "--add-modules=jdk.incubator.vector",
    *QUICK_START,
    "-Dio.netty.tryReflectionSetAccessible=true",
]
_EXECUTOR = b"CoarseGrainedExecutorBackend"
_PYTHON = b"pyspark.daemon"
_BATCHES = b"foreach_batch_worker"
_ENVIRONMENT = {
    "SPARK_HOME": str(SPARK_HOME),
    "SPARK_LOCAL_IP": "127.0.0.1",
    "PYSPARK_PYTHON": sys.executable,
    "SPARK_SCALA_VERSION": "2.13",
}

QUICK_EXECUTORS = ("--spark-conf", f"spark.executor.extraJavaOptions={' '.join(QUICK_START)}")
"""For executors that live for seconds; a Connect server has none, and does not let its settings be changed."""
SMALL = (
    *("--spark-conf", "spark.sql.shuffle.partitions=2"),
    *("--spark-conf", "spark.sql.codegen.wholeStage=false"),
    *("--spark-conf", "spark.sql.codegen.factoryMode=NO_CODEGEN"),
    *("--spark-conf", "spark.sql.adaptive.enabled=false"),
)
"""For data so small that Java would be busy with compiling and planning each query for most of the time."""


@contextmanager
def spark_cluster(folder: Path, *, workers: int = 1) -> Iterator[str]:
    """The master's address, `spark://127.0.0.1:PORT`, of a standalone cluster with two cores in all."""
    port = free_port()
    with ExitStack() as stack:
        address = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(free_port())]
        master = _start(stack, folder, "master", "org.apache.spark.deploy.master.Master", address)
        master.wait_ready(lambda: listens(port))
        url = f"spark://127.0.0.1:{port}"
        for number in range(workers):
            size = ["--host", "127.0.0.1", "--cores", str(2 // workers), "--memory", "1g"]
            place = ["--work-dir", str(folder / ("work" if not number else f"work-{number}"))]
            options = [*size, *place, "--webui-port", str(free_port()), url]
            worker = _start(stack, folder, f"worker-{number}", "org.apache.spark.deploy.worker.Worker", options)
            worker.wait_ready(partial(_is_registered, worker))
        yield url


def _is_registered(worker: JavaServer) -> bool:
    return "Successfully registered" in worker.log.read_text(errors="replace")


@contextmanager
def spark_connect(folder: Path) -> Iterator[str]:
    """The address, `sc://127.0.0.1:PORT`, of a Connect server that does the work itself."""
    port = free_port()
    settings = {
        **{name: spark_properties(SparkSettings(log_file=folder))[name] for name in DELTA},
        "spark.master": "local[2]",  # one for a command, and one for what a killed command left
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    arguments = [text for name, value in settings.items() for text in ("--conf", f"{name}={value}")]
    server_class = "org.apache.spark.sql.connect.service.SparkConnectServer"
    with ExitStack() as stack:
        submit = [*arguments, "--class", server_class, "spark-internal"]
        server = _start(stack, folder, "connect", "org.apache.spark.deploy.SparkSubmit", submit)
        server.wait_ready(lambda: listens(port))
        yield f"sc://127.0.0.1:{port}"


def _start(stack: ExitStack, folder: Path, name: str, main_class: str, arguments: list[str]) -> JavaServer:
    with mock.patch.dict(os.environ, _ENVIRONMENT):
        server = JavaServer(
            f"Spark's {name}", SPARK_HOME / "jars", main_class, arguments, log=folder / f"{name}.log", options=_OPTIONS
        )
    stack.callback(server.stop)
    return server


def executor_pids(folder: Path) -> list[int]:
    """The process ids of the executors that run in a folder or below it, as those of a cluster do in its own."""
    found = []
    for each, command in _processes():
        with suppress(OSError):  # it has ended meanwhile
            if _EXECUTOR in command and Path(f"/proc/{each}/cwd").resolve().is_relative_to(folder.resolve()):
                found.append(each)
    return found


def worker_pids(folder: Path) -> list[int]:
    """The process ids of the Python workers of the server in a folder, and of those that start them."""
    return [pid for pid, command in _processes() if _PYTHON in command and _is_below(pid, folder)]


def batch_pids(folder: Path) -> list[int]:
    """The process ids of the Connect server in a folder that call the functions of streams for each batch."""
    return [pid for pid, command in _processes() if _BATCHES in command and _is_below(pid, folder)]


def _is_below(pid: int, folder: Path) -> bool:
    """Whether a process, or one that it descends from, runs in a folder."""
    with suppress(OSError):
        while pid > 1:
            if Path(f"/proc/{pid}/cwd").resolve() == folder.resolve():
                return True
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return False


def _processes() -> Iterator[tuple[int, bytes]]:
    for each in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            yield int(each.name), (each / "cmdline").read_bytes()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
