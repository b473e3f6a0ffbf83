"""The program without any of its extras: all help is there, and a command that lacks one says which."""

import json
from pathlib import Path

import pytest
from tests.support.brokers.servers import Kafka
from tests.support.packaging.bare_environment import BareEnvironment

from kafka_quotas.cli.main import DROP_IN

EXTRAS = {
    "daemon run --upstream 127.0.0.1:1 --metrics-port 0": "daemon",
    "apply quotas.yaml --watch 5 --metrics 127.0.0.1:0": "daemon",
    "load-test produce --embedded --quota 1MB/s --duration 1s --plot run.png": "plot",
    "load-test produce --embedded --quota 1MB/s --duration 1s --client raw": "raw",
    "load-test requests --embedded --api Produce --duration 1s": "raw",
    "load-test produce --embedded --quota 1MB/s --duration 1s --client kafka-python": "kafka-python",
    "pipeline ingest request.log --out tables": "spark",
    "pipeline usage tables": "spark",
    "pipeline replay tables": "spark",
    "pipeline recommend tables": "spark",
    "pipeline validate tables": "spark",
    "pipeline report tables --out report.html": "spark",
    "pipeline stream folder --out out": "spark",
    "pipeline demo --out demo": "spark",
}
"""Command lines that lack an extra, and its name."""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> BareEnvironment:
    environment = BareEnvironment(tmp_path_factory.mktemp("bare"))
    (environment.folder / "quotas.yaml").write_text("schema: kafka-quotas.quotas/1\nentries: []\n", encoding="utf-8")
    (environment.folder / "request.log").write_text("{}\n", encoding="utf-8")
    return environment


def test_every_command_shows_its_help(bare: BareEnvironment) -> None:
    (tree,) = bare.run_each([["--help-json"]])
    assert (tree.code, tree.err) == (0, "")
    paths = [command["path"].split()[1:] for command in json.loads(tree.out)["commands"]]
    assert len(paths) > 50
    for path, shown in zip(paths, bare.run_each([[*path, "--help"] for path in paths]), strict=True):
        if path == [DROP_IN]:  # as Kafka's own, which prints its usage as an error
            assert shown.err.startswith("This tool"), path
            continue
        assert (shown.code, shown.err) == (0, ""), path
        assert shown.out.startswith("Usage: "), path


def test_a_command_that_lacks_an_extra_says_which_before_it_starts_anything(bare: BareEnvironment) -> None:
    before = files(bare.folder)
    outcomes = bare.run_each([command.split() for command in EXTRAS])
    for (command, extra), outcome in zip(EXTRAS.items(), outcomes, strict=True):
        *notes, error, hint = outcome.err.splitlines()
        assert (outcome.code, outcome.out) == (2, ""), (command, outcome.err)
        assert error.startswith("error: "), command
        assert error.endswith(", not installed here"), command
        assert hint == f"hint: pip install 'kafka-quotas[{extra}]'", command
        assert all(note.startswith("note: the embedded") or "too short to judge" in note for note in notes), command
    assert files(bare.folder) == before


def test_calibrating_needs_no_extra(bare: BareEnvironment, kafka4: Kafka, tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    options = ["--rounds", "1", "--warm-up", "0.05", "--cost-model", str(path)]
    (found,) = bare.run_each([["daemon", "calibrate", "--upstream", kafka4.bootstrap.split(",")[0], *options]])
    assert found.code == 0, found.err
    assert json.loads(path.read_text())["apis"]


def test_a_login_that_needs_an_extra_names_it(bare: BareEnvironment, kafka4: Kafka, tmp_path: Path) -> None:
    trusted = tmp_path / "trust.p12"
    trusted.write_bytes(bytes.fromhex("3082010002010330"))
    properties = tmp_path / "client.properties"
    properties.write_text(
        f"security.protocol=SSL\nssl.truststore.location={trusted}\nssl.truststore.type=PKCS12\n"
        "ssl.truststore.password=secret\n"
    )
    options = ["--bootstrap-server", kafka4.tls_bootstrap.split(",")[0], "--command-config", str(properties)]
    (found,) = bare.run_each([["describe", *options]])
    assert (found.code, found.out) == (2, "")
    assert "kafka-quotas[pkcs12]" in found.err


def test_floods_of_requests_without_records_need_no_extra(bare: BareEnvironment) -> None:
    flood = ["load-test", "requests", "--api", "ApiVersions", "--bootstrap-server", "127.0.0.1:1", "--yes"]
    (refused,) = bare.run_each([flood])
    assert "127.0.0.1:1" in refused.err
    assert "not installed" not in refused.err


def files(folder: Path) -> set[Path]:
    """All files that a command may have left, but for compiled modules."""
    found = (path for name in (".local", ".config", ".") for path in (folder / name).glob("**/*"))
    return {path for path in found if path.suffix != ".pyc" and path.name != "__pycache__"}
