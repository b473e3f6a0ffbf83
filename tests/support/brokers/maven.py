"""Jars of servers and for Spark, fetched by Maven into `.cache/` of the repository, once for all runs and benchmarks.

`jars(KAFKA_4)` is the folder with the jars of one release; versions are pinned. Several processes may ask at once: one
downloads, the others wait for its lock. A folder that exists is complete, for it is renamed into place.
"""

import fcntl
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

CACHE = Path(__file__).resolve().parents[3] / ".cache"
DOWNLOAD_TIMEOUT_S = 540
_NOTHING_ELSE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A release as Maven coordinates (group:artifact:version)."""

    version: str
    coordinates: tuple[str, ...] = ()
    name: str = "kafka"
    alone: tuple[str, ...] = ()
    """Coordinates of what comes without all that it depends on."""
    present: tuple[str, ...] = ()
    """Groups of what is there already, where the jars are used."""


KAFKA_4 = Release(
    version="4.3.1",
    coordinates=(
        "org.apache.kafka:kafka_2.13:4.3.1",
        "org.apache.kafka:kafka-tools:4.3.1",
        "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",
    ),
)
KAFKA_3 = Release(
    version="3.9.2",
    coordinates=(
        "org.apache.kafka:kafka_2.13:3.9.2",
        "org.apache.kafka:kafka-tools:3.9.2",
        "org.slf4j:slf4j-reload4j:1.7.36",
    ),
)
S3PROXY = Release(
    name="s3proxy",
    version="4.1.0",
    coordinates=(  # of its 150 jars those that no other cloud needs
        "args4j:args4j:2.37",
        "ch.qos.logback:logback-classic:1.6.3",
        "com.google.guava:guava:33.7.1-jre",
        "jakarta.servlet:jakarta.servlet-api:6.0.0",
        "software.amazon.awssdk:aws-core:2.54.2",
        "tools.jackson.dataformat:jackson-dataformat-xml:3.2.2",
    ),
    alone=("org.gaul:s3proxy:4.1.0", "software.amazon.awssdk:s3:2.54.2"),
)


HADOOP_AWS = Release(
    name="s3a",
    version="3.4.1",
    coordinates=("software.amazon.awssdk:s3-transfer-manager:2.29.52", "software.amazon.awssdk:sts:2.29.52"),
    alone=("org.apache.hadoop:hadoop-aws:3.4.1",),  # which wants all clients of the AWS SDK, 558 MB
    present=("io.netty", "org.slf4j"),
)
"""What Spark's `s3a:` needs."""


HDFS = Release(
    name="hdfs",
    version="3.4.1",
    coordinates=(
        "org.apache.hadoop:hadoop-hdfs:3.4.1",
        "org.apache.hadoop:hadoop-hdfs-client:3.4.1",
        "org.apache.hadoop:hadoop-common:3.4.1",
    ),
)


KAFKA_STREAMS = Release(name="kafka-streams", version="4.3.1", alone=("org.apache.kafka:kafka-streams:4.3.1",))
"""Kafka Streams beside the jars of `KAFKA_4`, without the database that only stores of state need."""


JMX_EXPORTER = Release(
    name="jmx-exporter", version="1.0.1", coordinates=("io.prometheus.jmx:jmx_prometheus_javaagent:1.0.1",)
)


class MissingServerError(RuntimeError):
    """A server that the tests need could not be fetched or started.

    The message says why.
    """


def jars(release: Release) -> Path:
    """The folder that holds every jar of a release.

    Raises `MissingServerError` where Maven is missing or fails.
    """
    folder = CACHE / f"{release.name}-{release.version}"
    CACHE.mkdir(exist_ok=True)
    with exclusive(folder.with_name(f"{folder.name}.lock")):
        if not folder.is_dir():
            _download(release, folder)
    return folder


def _download(release: Release, folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise MissingServerError("Maven (mvn) is not installed, it fetches the servers' jars")
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        pom, target = Path(scratch) / "pom.xml", Path(scratch) / "jars"
        pom.write_text(_pom(release))
        command = [maven, "-B", "-ntp", "-q", "-f", str(pom), "dependency:copy-dependencies"]
        command += ["-DincludeScope=runtime", f"-DexcludeGroupIds={','.join(release.present)}"]
        command += [f"-DoutputDirectory={target}"]
        result = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_S, check=False)
        if result.returncode != 0:
            raise MissingServerError(f"Maven could not fetch {folder.name}:\n{result.stdout}{result.stderr}")
        target.rename(folder)


def _pom(release: Release) -> str:
    dependencies = "".join(
        "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>{}</dependency>".format(
            *coordinate.split(":"), _NOTHING_ELSE if coordinate in release.alone else ""
        )
        for coordinate in (*release.coordinates, *release.alone)
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>kafka-quotas</groupId><artifactId>test-servers</artifactId><version>1</version>"
        f"<packaging>pom</packaging><dependencies>{dependencies}</dependencies></project>"
    )


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
