"""The pipeline's commands without the program `kafka-quotas`: as a module, and by `spark-submit`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.brokers.java_process import java
from tests.support.pipeline.command_process import environment
from tests.support.pipeline.logs import SAMPLES

import kafka_quotas.pipeline
from kafka_quotas.pipeline.engine.spark_settings import jar_packages

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(java() is None, reason="Spark needs Java, and there is none here"),
]

MAIN = Path(kafka_quotas.pipeline.__path__[0]) / "__main__.py"
SUBMIT = Path(sys.executable).with_name("spark-submit")


def output_of(*command: str | Path) -> str:
    variables = {**environment(), "PYSPARK_PYTHON": sys.executable, "PATH": f"{SUBMIT.parent}:{os.environ['PATH']}"}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_submitted_application_gives_what_the_module_gives(tmp_path: Path) -> None:
    data = str(tmp_path / "traffic")
    module = (sys.executable, "-m", "kafka_quotas.pipeline")
    output_of(*module, "ingest", "--source", SAMPLES[1], "--timezone", "UTC", "--broker-id", "1", "--out", data)
    usage = ("usage", data, "--output", "json")
    here = json.loads(output_of(*module, *usage))
    submitted = (
        SUBMIT,
        "--master",
        "local[2]",
        "--conf",
        "spark.ui.enabled=false",
        "--packages",
        *jar_packages(()),
        MAIN,
    )
    said, brace, document = output_of(*submitted, *usage).partition("{")  # Spark puts both outputs into one
    assert "using the spark engine (--master local[2] was given)" in said
    there = json.loads(brace + document)
    assert here == there
