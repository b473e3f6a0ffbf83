"""Jars that Spark fetches: from the repository that is named, whatever `~/.m2` holds, and named if it has none."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tests.support.brokers.java_process import java
from tests.support.pipeline.command_process import environment

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(java() is None, reason="Spark needs Java, and there is none here"),
]

_POM = (
    '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
    "<groupId>io.delta</groupId><artifactId>delta-spark_test</artifactId><version>1</version></project>"
)
_SESSION = """
import sys
from pathlib import Path
from kafka_quotas.pipeline.engine.spark_session import spark_session
from kafka_quotas.pipeline.engine.spark_settings import SparkSettings
settings = SparkSettings(log_file=Path(sys.argv[1]), master="local[1]", packages=("io.delta:delta-spark_test:1",))
with spark_session(settings) as session:
    print(session.conf.get("spark.jars"))
"""


def pom_in(repository: Path) -> Path:
    """A pom of what stands for Delta Lake, in the layout of Maven."""
    pom = repository / "io" / "delta" / "delta-spark_test" / "1" / "delta-spark_test-1.pom"
    pom.parent.mkdir(parents=True)
    pom.write_text(_POM, encoding="utf-8")
    return pom


def run(folder: Path, *command: str | Path) -> "subprocess.CompletedProcess[str]":
    """Run Python with a home and a repository of its own."""
    variables = {
        **environment(),
        "JAVA_TOOL_OPTIONS": f"-Duser.home={folder / 'home'}",
        "DEFAULT_ARTIFACT_REPOSITORY": f"{(folder / 'central').as_uri()}/",
    }
    command = (sys.executable, *command)
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=300, check=False)


def test_a_pom_without_its_jar_in_the_home_stops_no_session(tmp_path: Path) -> None:
    pom_in(tmp_path / "home" / ".m2" / "repository")
    with zipfile.ZipFile(pom_in(tmp_path / "central").with_suffix(".jar"), "w") as jar:
        jar.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\n")
    done = run(tmp_path, "-c", _SESSION, tmp_path / "spark.log")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("io.delta_delta-spark_test-1.jar")


def test_a_stream_names_the_jars_of_the_kafka_source_that_are_nowhere(tmp_path: Path) -> None:
    (tmp_path / "central").mkdir()
    quotas = tmp_path / "quotas.yaml"
    quotas.write_text("entries:\n  - {entity: {user: null}, quotas: {producer_byte_rate: 60k}}\n", encoding="utf-8")
    stream = ("pipeline", "stream", "kafka://127.0.0.1:1/events", "--once", "--checkpoint", tmp_path / "checkpoint")
    done = run(tmp_path, "-m", "kafka_quotas", *stream, "--quotas", quotas)
    assert done.returncode == 1
    error, hint = done.stderr.splitlines()[-2:]
    assert error.startswith("error: Spark did not start on local[*]: ")
    assert "org.apache.spark#spark-sql-kafka-0-10_2.13" in error
    assert "spark.jars.packages other versions" in hint
