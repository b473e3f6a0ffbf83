"""What `python -m build` makes: an archive of all of the source, a wheel of that, and the installed command."""

import os
import re
import signal
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path, PurePosixPath

import pytest
import yaml
from tests.support.processes.output_contract import check_output

from kafka_quotas.loadtest.scenario.model import shipped_names

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PAGES = sorted(path.name for path in (ROOT / "man" / "man1").glob("*.1"))
LINKS = {"cli", "commands", "enforcement"}
"""The links at the root, which only open folders for a reader."""


def ran(*command: str) -> str:
    """What a command that has to succeed wrote."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, cwd=ROOT)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The archive of the source, and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    ran(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT))
    (archive,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*-py3-none-any.whl")
    return archive, wheel


@pytest.fixture(scope="module")
def wheel(distributions: tuple[Path, Path]) -> Path:
    return distributions[1]


@pytest.fixture(scope="module")
def prefix(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the wheel was installed, without its dependencies."""
    folder = tmp_path_factory.mktemp("prefix")
    options = [
        "--quiet",
        "--no-deps",
        "--no-index",
        "--ignore-installed",
        "--no-compile",
        "--disable-pip-version-check",
    ]
    ran(sys.executable, "-m", "pip", "install", *options, "--prefix", str(folder), str(wheel))
    return folder


def run(prefix: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """What the installed command answers, in JSON by its published schema."""
    done = subprocess.run(
        [str(prefix / "bin" / "kafka-quotas"), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        env=process_environment(prefix, environment),
    )
    check_output(arguments, done.stdout)
    return done


def process_environment(prefix: Path, added: Mapping[str, str]) -> dict[str, str]:
    packages = sysconfig.get_path("purelib", vars={"base": str(prefix)})
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_QUOTAS_")}
    return kept | {"PYTHONPATH": packages, "XDG_DATA_HOME": str(prefix / "data"), "NO_COLOR": "1", **added}


def test_the_archive_has_every_file_of_the_repository(distributions: tuple[Path, Path]) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("no repository: this is such an archive itself")
    tracked = {name for name in ran("git", "ls-files").splitlines() if (ROOT / name).exists()}
    with tarfile.open(distributions[0]) as archive:
        kept = {name.partition("/")[2] for name in archive.getnames()}
    assert tracked - LINKS - kept == set()
    assert not any(name.partition("/")[0] in LINKS for name in kept)


def test_the_wheel_ships_pages_completions_and_types_and_nothing_beside(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    stem = f"kafka_quotas-{PROJECT['version']}"
    shared = {name.removeprefix(f"{stem}.data/data/") for name in names if name.startswith(f"{stem}.data/data/")}
    assert shared == {
        *(f"share/man/man1/{page}" for page in PAGES),
        "share/bash-completion/completions/kafka-quotas",
        "share/zsh/site-functions/_kafka-quotas",
        "share/fish/vendor_completions.d/kafka-quotas.fish",
    }
    assert "kafka_quotas/py.typed" in names
    assets = ROOT / "src" / "kafka_quotas" / "commands" / "web" / "assets"
    assert {f"kafka_quotas/commands/web/assets/{path.name}" for path in assets.iterdir()} <= set(names)
    scenarios = [PurePosixPath(name) for name in names if name.startswith("kafka_quotas/loadtest/scenarios/")]
    assert sorted(path.stem for path in scenarios) == sorted(shipped_names())
    assert {name.split("/")[0] for name in names} == {"kafka_quotas", f"{stem}.dist-info", f"{stem}.data"}
    modules = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*.py")}
    assert modules - set(names) == set()


def test_pages_and_completions_are_installed_where_they_are_looked_for(prefix: Path) -> None:
    assert sorted(path.name for path in (prefix / "share" / "man" / "man1").iterdir()) == PAGES
    shipped = prefix / "share" / "bash-completion" / "completions" / "kafka-quotas"
    assert shipped.read_bytes() == (ROOT / "completions" / "kafka-quotas.bash").read_bytes()


def test_the_installed_command_is_the_installed_package(prefix: Path) -> None:
    done = run(prefix, "--version")
    assert (done.returncode, done.stdout) == (0, f"kafka-quotas {PROJECT['version']} (pure Python)\n")
    shown = subprocess.run(
        [sys.executable, "-c", "import kafka_quotas; print(kafka_quotas.__file__)"],
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
        env=process_environment(prefix, {}),
    )
    assert shown.stdout.startswith(str(prefix))
    told = run(prefix, "throttle", "rate", "--quota", "5MB/s", "--observed", "6MB/s", "--output", "json").stdout
    assert '"delay_ms":' in told


def test_the_examples_of_the_wheel_can_be_copied(prefix: Path, tmp_path: Path) -> None:
    done = run(prefix, "examples", "copy", "systemd", "--to", str(tmp_path / "mine"))
    assert done.returncode == 0, done.stderr
    unit = tmp_path / "mine" / "systemd" / "kafka-quotas.service"
    assert unit.read_bytes() == (ROOT / "examples" / "systemd" / "kafka-quotas.service").read_bytes()
    listed = run(prefix, "examples", "list", "--output", "json")
    assert f'"folder": "{prefix}' in listed.stdout


def test_a_quota_set_by_one_process_is_read_by_the_next(prefix: Path) -> None:
    done = run(prefix, "alter", "--user", "alice", "--add-config", "producer_byte_rate=10MiB")
    line = f"user alice in local:{prefix}/data/kafka-quotas/quotas.db: producer_byte_rate not set -> 10 MiB/s\n"
    assert (done.returncode, done.stdout) == (0, line)
    assert "no broker was changed" in done.stderr
    done = run(prefix, "describe", "--output", "csv")
    header = "user,client_id,ip,topic,broker,group,defaults,key,value"
    assert done.stdout == f"{header}\nalice,,,,,,,producer_byte_rate,10485760\n"
    assert run(prefix, "alter", "--user", "", "--add-config", "producer_byte_rate=1").returncode == 2


def test_another_encoding_of_the_terminal_is_no_traceback(prefix: Path) -> None:
    store = f"local:{prefix}/encoding.db"
    options = ("--store", store, "--user", "\u00fc\u4e16\u754c", "--add-config", "producer_byte_rate=1")
    assert run(prefix, "alter", *options, PYTHONUTF8="1").returncode == 0
    for output in ("table", "json", "yaml", "csv", "markdown"):
        done = run(prefix, "describe", "--store", store, "--output", output, PYTHONUTF8="0", PYTHONIOENCODING="ascii")
        assert (done.returncode, done.stderr) == (0, ""), output
        if output in ("json", "yaml"):
            assert yaml.safe_load(done.stdout)["entries"][0]["entity"] == {"user": "\u00fc\u4e16\u754c"}


def test_ctrl_c_ends_with_130_and_no_traceback(prefix: Path, tmp_path: Path) -> None:
    """A process that reads its events from a pipe waits there until it is interrupted."""
    pipe = tmp_path / "events.jsonl"
    os.mkfifo(pipe)
    command = [str(prefix / "bin" / "kafka-quotas"), "throttle", "simulate", str(pipe), "--quota", "5MB/s"]
    with (
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=process_environment(prefix, {})
        ) as process,
        pipe.open("w", encoding="utf-8"),
    ):  # returns once the process has opened the other end
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=240)
    assert (process.returncode, err) == (130, "")


def test_versions_agree() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert version("kafka-quotas") == PROJECT["version"]
    assert PROJECT["version"] in re.findall(r"^## \[(\d[^\]]*)\] - ", changelog, re.MULTILINE)
