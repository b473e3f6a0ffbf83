"""The jars of Kafka's own server, fetched once by Maven from its public releases."""

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from kafka_quotas.core.errors import KafkaQuotasError

VERSION: Final = "4.3.1"
_COORDINATES: Final = (
    ("org.apache.kafka", "kafka_2.13", VERSION),
    ("org.apache.kafka", "kafka-tools", VERSION),
    ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),
)
_FETCH_TIMEOUT_S: Final = 300


class KafkaServerError(KafkaQuotasError):
    """Kafka's server could not be fetched or did not start."""


def kafka_jars(folder: Path) -> Path:
    """Fetch every jar of one release into the folder, unless it exists, and return it.

    An existing folder is complete.

    Raises:
        KafkaServerError: Maven is missing or fails.
    """
    if folder.is_dir():
        return folder
    maven = shutil.which("mvn")
    if maven is None:
        raise KafkaServerError(f"Kafka's jars are not in {folder}, and Maven (mvn) to fetch them is not installed")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".kafka-jars-") as scratch:
            _fetch(maven, Path(scratch))
            (Path(scratch) / "jars").rename(folder)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise KafkaServerError(f"cannot fetch Kafka's jars: {error}") from error
    return folder


def _fetch(maven: str, scratch: Path) -> None:
    """Fetch the jars into `jars` below the folder."""
    pom = scratch / "pom.xml"
    pom.write_text(_pom(), encoding="utf-8")
    command = [maven, "-B", "-ntp", "-q", "-f", str(pom), "dependency:copy-dependencies", "-DincludeScope=runtime"]
    command.append(f"-DoutputDirectory={scratch / 'jars'}")
    done = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_TIMEOUT_S, check=False)  # noqa: S603 - Maven
    if done.returncode != 0:
        lines = (done.stdout + done.stderr).strip().splitlines()
        raise KafkaServerError(f"Maven cannot fetch Kafka {VERSION}: {lines[0] if lines else done.returncode}")


def _pom() -> str:
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version></dependency>"
        for group, name, version in _COORDINATES
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>kafka-quotas</groupId><artifactId>demo-server</artifactId><version>1</version>"
        f"<packaging>pom</packaging><dependencies>{dependencies}</dependencies></project>"
    )
