"""Commands in an interpreter that has none of the extras' libraries: they work, or name the extra and end."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.brokers.servers import Kafka

_BARE = """
import importlib.abc, sys

HIDDEN = {hidden!r}

class Hidden(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in HIDDEN:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
        return None

import importlib.util
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name.partition(".")[0] in HIDDEN else real(name, package)
sys.meta_path.insert(0, Hidden())
from kafka_quotas.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
LIBRARIES = (
    *("numpy", "pandas", "pyarrow", "pyspark", "numba", "orjson", "matplotlib", "jinja2"),
    *("kafka", "crc32c", "cryptography", "puresasl", "uvloop", "prometheus_client"),
)


def bare(*arguments: str) -> "subprocess.CompletedProcess[str]":
    program = _BARE.format(hidden=LIBRARIES)
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=300, check=False
    )


PIPELINE = {
    "ingest": ("--out", "nowhere", "nothing.log"),
    "usage": ("nowhere", "--store", "kafka://127.0.0.1:1"),
    "replay": ("nowhere", "--store", "kafka://127.0.0.1:1"),
    "recommend": ("nowhere", "--default-of", "user"),
    "validate": ("nowhere", "--store", "kafka://127.0.0.1:1"),
    "report": ("nowhere", "--out", "report.html"),
    "stream": ("folder", "--out", "out"),
    "demo": ("--out", "demo-output"),
}


@pytest.mark.parametrize("job", PIPELINE)
def test_a_pipeline_job_names_the_extra_before_anything_else(
    job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = bare("pipeline", job, *PIPELINE[job])
    assert found.returncode == 2, found.stderr
    assert found.stderr.splitlines()[-1] == "hint: pip install 'kafka-quotas[spark]'"
    assert len(found.stderr.splitlines()) == 2
    assert list(tmp_path.iterdir()) == []
    explained = bare("pipeline", job, "--help")
    assert (explained.returncode, explained.stderr) == (0, "")


def test_calibrating_needs_no_extra(kafka4: Kafka, tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    upstream = kafka4.bootstrap.split(",")[0]
    options = ("--rounds", "1", "--warm-up", "0.05", "--cost-model", str(path))
    found = bare("daemon", "calibrate", "--upstream", upstream, *options)
    assert found.returncode == 0, found.stderr
    assert json.loads(path.read_text())["apis"]


def test_a_login_that_needs_an_extra_names_it(kafka4: Kafka, tmp_path: Path) -> None:
    store = tmp_path / "trust.p12"
    store.write_bytes(bytes.fromhex("3082010002010330"))
    properties = tmp_path / "client.properties"
    properties.write_text(
        f"security.protocol=SSL\nssl.truststore.location={store}\nssl.truststore.type=PKCS12\n"
        "ssl.truststore.password=secret\n"
    )
    model = str(tmp_path / "costs.json")
    options = ("--cost-model", model, "--command-config", str(properties))
    found = bare("daemon", "calibrate", "--upstream", kafka4.tls_bootstrap.split(",")[0], *options)
    assert found.returncode == 2, found.stderr
    assert "kafka-quotas[pkcs12]" in found.stderr


def test_floods_of_requests_without_records_need_no_extra() -> None:
    explained = bare("load-test", "requests", "--help")
    assert (explained.returncode, explained.stderr) == (0, "")
    refused = bare("load-test", "requests", "--api", "ApiVersions", "--bootstrap-server", "127.0.0.1:1", "--yes")
    assert "127.0.0.1:1" in refused.stderr
    assert "No module named" not in refused.stderr
