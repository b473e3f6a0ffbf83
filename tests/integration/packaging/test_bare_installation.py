"""The program without any of its extras: all help is there, and a command that lacks one says which."""

import json
import os
import shlex
import subprocess
import sys
import sysconfig
import tomllib
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement
from tests.support.brokers.servers import Kafka

from kafka_quotas.cli.main import DROP_IN

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


_RUN_EACH = """
import contextlib, io, json, sys
from kafka_quotas.cli.main import main
outcomes = []
for argv in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(argv)
    outcomes.append((code, out.getvalue(), err.getvalue()))
json.dump(outcomes, sys.stdout)
"""


class Outcome(NamedTuple):
    """What a command line ended with."""

    code: int
    out: str
    err: str


class BareEnvironment:
    """The environment in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=120)
        packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
        for each in _closure(PROJECT["dependencies"], {}).values():
            _link(each, packages)
        (packages / "kafka_quotas").symlink_to(ROOT / "src" / "kafka_quotas")
        metadata = f"Metadata-Version: 2.4\nName: kafka-quotas\nVersion: {PROJECT['version']}\n"
        lines = [
            f'Requires-Dist: {each}; extra == "{extra}"\n'
            for extra, names in PROJECT["optional-dependencies"].items()
            for each in names
        ]
        info = packages / f"kafka_quotas-{PROJECT['version']}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(metadata + "".join(lines), encoding="utf-8")

    def run_each(self, commands: Sequence[Sequence[str]]) -> list[Outcome]:
        """Run command lines one after the other in one process without any setting of the caller's."""
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        done = subprocess.run(
            [str(self.folder / "bin" / "python"), "-P", "-c", _RUN_EACH],
            input=json.dumps([list(each) for each in commands]),
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
            cwd=self.folder,
            env={**kept, "HOME": str(self.folder), "COLUMNS": "80", "NO_COLOR": "1"},
        )
        assert done.returncode == 0, done.stderr
        return [Outcome(*each) for each in json.loads(done.stdout)]


def _closure(requirements: Iterable[str], found: dict[str, Distribution]) -> dict[str, Distribution]:
    """Return what the requirements need outside of extras, by name."""
    for required in map(Requirement, requirements):
        if required.name not in found and (required.marker is None or required.marker.evaluate({"extra": ""})):
            found[required.name] = distribution(required.name)
            _closure(found[required.name].requires or (), found)
    return found


def _link(each: Distribution, packages: Path) -> None:
    for name in sorted(set(_top_level(each))):
        if not (packages / name).exists():
            (packages / name).symlink_to(str(each.locate_file(name)))


def _top_level(each: Distribution) -> Iterator[str]:
    for file in each.files or ():
        if file.parts[0] not in ("..", "__pycache__"):
            yield file.parts[0]


EXTRAS = {
    "throttle simulate events.csv --quota 5 --plot run.png": "plot",
    "load-test produce --embedded --quota 1MB/s --duration 1s --client raw": "raw",
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
        wanted = sorted(str(each) for each in map(Requirement, PROJECT["optional-dependencies"][extra]))
        assert hint.startswith(f"hint: uv pip install --python {bare.folder}/bin/python "), "it has no pip"
        assert sorted(str(each) for each in map(Requirement, shlex.split(hint)[6:])) == wanted, command
        assert all(note.startswith("note: the embedded") or "too short to judge" in note for note in notes), command
    assert files(bare.folder) == before


def test_the_example_of_the_daemon_is_in_order_and_runs_with_its_metrics(bare: BareEnvironment, tmp_path: Path) -> None:
    config = str(tmp_path / "daemon" / "daemon.toml")
    for command in (["examples", "copy", "daemon", "--to", str(tmp_path)], ["daemon", "check", "--config", config]):
        (done,) = bare.run_each([command])
        assert done.code == 0, done.err
    here = {
        "--upstream": "127.0.0.1:1",
        "--listen": "127.0.0.1:0",
        "--metrics-port": "127.0.0.1:0",
        "--store": f"local:{tmp_path / 'quotas.db'}",
        "--control": str(tmp_path / "daemon.sock"),
    }
    options = [word for pair in here.items() for word in pair]
    command = [str(bare.folder / "bin" / "python"), "-P", "-m", "kafka_quotas", "daemon", "run", "--config", config]
    with subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True, cwd=tmp_path) as daemon:
        assert daemon.stderr is not None
        events = (json.loads(line) for line in daemon.stderr)
        listening = next(event for event in events if event["event"] == "daemon listening")
        with urllib.request.urlopen(listening["metrics"], timeout=60) as answer:
            assert b"kafka_quotas_ready 0.0" in answer.read()
        daemon.terminate()
        daemon.communicate(timeout=60)
        assert daemon.returncode == 0


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
    assert "'cryptography" in found.err


def test_floods_of_requests_without_records_need_no_extra(bare: BareEnvironment) -> None:
    flood = ["load-test", "requests", "--api", "ApiVersions", "--bootstrap-server", "127.0.0.1:1", "--yes"]
    (refused,) = bare.run_each([flood])
    assert "127.0.0.1:1" in refused.err
    assert "not installed" not in refused.err


def files(folder: Path) -> set[Path]:
    """All files that a command may have left, but for compiled modules."""
    found = (path for name in (".local", ".config", ".") for path in (folder / name).glob("**/*"))
    return {path for path in found if path.suffix != ".pyc" and path.name != "__pycache__"}
