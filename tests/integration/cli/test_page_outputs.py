"""What pages show of commands that need a cluster is what they print, and all of them run: servers `kafka4`."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.support.brokers.servers import Kafka
from tests.support.daemon.process import DaemonProcess
from tests.support.processes.awaiting import await_true
from tests.support.processes.forked_program import ForkedProgram
from tests.support.processes.run_cli import run_cli
from tests.support.processes.shown_commands import ROOT, lines_with_servers

from kafka_quotas.core.model.entity import EVERYTHING
from kafka_quotas.stores import open_store
from kafka_quotas.stores.store import Alteration

DOCS = ROOT / "docs"
TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")


@pytest.fixture
def cluster(kafka4: Kafka) -> Iterator[str]:
    """The address of a cluster without quotas of the clients that the pages name."""
    yield kafka4.bootstrap
    for entity in (("--user", "alice"), ("--client-default",)):
        for key in ("producer_byte_rate", "request_percentage"):
            run_cli("alter", *entity, "--delete-config", key, "--bootstrap-server", kafka4.bootstrap)


def block(page: str, command: str) -> list[str]:
    """Return the lines of a page's block that begins with a command."""
    text = (DOCS / page).read_text(encoding="utf-8")
    (found,) = re.findall(rf"^```\n(\$ kafka-quotas {command}.*?)```", text, re.DOTALL | re.MULTILINE)
    return str(found).splitlines()


def test_the_page_on_kafka_configs_shows_its_output(cluster: str) -> None:
    lines = block("reference/kafka-configs.md", "kafka-configs")
    printed: list[str] = []
    for line in (each for each in lines if each.startswith("$ ")):
        argv = shlex.split(line.replace("localhost:9092", cluster))[2:]
        if "--describe" in argv:  # like Kafka's own, it doesn't wait until the broker has what it accepted
            await_true(partial(_mentions_alice, argv), "the quota at the broker")
        code, out, err = run_cli(*argv)
        assert code == 0
        of_others = [each for each in out.splitlines() if "user-principal" in each and "'alice'" not in each]
        printed += [line, *(each for each in (out + err).splitlines() if each not in of_others)]
    assert printed == lines


def _mentions_alice(argv: list[str]) -> bool:
    return "'alice'" in run_cli(*argv)[1]


def test_the_page_on_history_shows_what_watch_prints(cluster: str) -> None:
    command, *shown = block("how-to/history.md", "watch")
    server = ("--bootstrap-server", cluster)
    assert run_cli("alter", "--user", "alice", "--add-config", "producer_byte_rate=2MiB", *server)[0] == 0
    argv = shlex.split(command.replace("kafka1:9092", cluster))[2:]
    with subprocess.Popen(
        [sys.executable, "-m", "kafka_quotas", *argv, "--limit", "2", "--duration", "60s"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as watching:
        assert watching.stderr is not None
        assert watching.stdout is not None
        note = watching.stderr.readline()
        run_cli("alter", "--user", "alice", "--add-config", "producer_byte_rate=10MiB", *server)
        first = watching.stdout.readline()
        run_cli("alter", "--client-default", "--add-config", "request_percentage=50%", *server)
        second = watching.stdout.readline()
    printed = [re.sub(r"of \d+ entit\w+", "of 12 entities", note.replace(cluster, "kafka1:9092")), first, second]
    assert [TIME.sub("", line.rstrip()) for line in printed] == [TIME.sub("", line) for line in shown]


BROKERS = re.compile(r"\b(broker(-1)?|kafka1|localhost|other-cluster):909[23](,broker-2:9092)?")
SHORTER = {
    "load-test run": ("--experiment", "0s", "--yes"),
    "load-test": ("--duration", "1s", "--warmup", "0s", "--yes"),
    "watch": ("--duration", "0.1s"),
    "top": ("--once",),
}
"""What is added to commands that would go on for a minute, or for ever."""
ANYWHERE = ("--listen", "127.0.0.1:0", "--metrics-port", "0", "--log-format", "text")
OURS = re.compile(r" --(listen|metrics-port|duration) \S+| --once| --yes")
"""What is left out of a line, because the test has a value of its own for it."""
FINDS = ("doctor", "why", "diff", "load-test")
"""Commands whose exit code says what they found."""


@pytest.fixture
def unchanged(kafka4: Kafka) -> Iterator[None]:
    """The cluster has the quotas that it had, and topics for load tests meanwhile."""
    admin = AdminClient({"bootstrap.servers": kafka4.bootstrap})
    for made in admin.create_topics([NewTopic(name, 1) for name in ("load", "orders")]).values():
        made.result(240)
    with closing(open_store(f"kafka://{kafka4.bootstrap}")) as store:
        before = {entry.entity: entry.quotas for entry in store.describe(EVERYTHING)}
        yield
        added = [entry for entry in store.describe(EVERYTHING) if entry.quotas != before.get(entry.entity)]
        changes = [dict.fromkeys(entry.quotas) | dict(before.get(entry.entity, {})) for entry in added]
        store.alter([Alteration(entity=each.entity, changes=to) for each, to in zip(added, changes, strict=True)])
    for gone in admin.delete_topics(["load", "orders"]).values():
        gone.result(240)


@pytest.fixture
def runtime_folder() -> Iterator[Path]:
    """A folder with a path short enough for sockets."""
    with TemporaryDirectory(prefix="kq-") as folder:
        yield Path(folder)


@pytest.mark.usefixtures("unchanged")
def test_every_line_about_a_cluster_or_a_daemon_runs(
    kafka4: Kafka, tmp_path: Path, runtime_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(ROOT / "examples", tmp_path, dirs_exist_ok=True)
    shutil.copy(tmp_path / "daemon" / "daemon.toml", tmp_path)
    shutil.copy(tmp_path / "request-log" / "quotas.yaml", tmp_path)
    assert run_cli("load-test", "init", "holds", str(tmp_path / "mine.yaml"))[0] == 0
    (tmp_path / "scenario.yaml").write_text(
        re.sub("^duration: .*", "duration: 4s", (tmp_path / "mine.yaml").read_text(), flags=re.MULTILINE)
    )
    shutil.copy(tmp_path / "scenario.yaml", tmp_path / "mine.yaml")
    (tmp_path / "costs.json").write_text('{"version": 1, "source": "a test", "other": {"request_us": 1}, "apis": {}}')
    (tmp_path / "admin.properties").write_text("client.id=admin\n")
    (tmp_path / "fleet.secret").write_text("0123456789abcdef\n")
    monkeypatch.chdir(tmp_path)
    homes = {f"XDG_{name}": str(tmp_path / name) for name in ("CONFIG_HOME", "STATE_HOME", "DATA_HOME")}
    homes["XDG_RUNTIME_DIR"] = str(runtime_folder)
    environment = {**homes, "KAFKA_QUOTAS_STORE": f"local:{tmp_path}/quotas.db", "KAFKA_PASSWORD": "secret"}
    daemon = DaemonProcess(["--upstream", kafka4.bootstrap, *ANYWHERE], environment=environment)
    failed = []
    try:
        addresses = {
            "/run/kafka-quotas/daemon.sock": str(daemon.control),
            "/run/kafka-quotas/control.sock": str(daemon.control),
            "http://broker-1:7071/metrics": daemon.metrics_url,
            "http://prometheus.example:9090": daemon.metrics_url,
            "/var/lib/kafka-quotas": str(tmp_path),
            "/etc/kafka-quotas/policy.toml": str(tmp_path / "daemon" / "policy.toml"),
            "/etc/kafka-quotas/fleet.secret": str(tmp_path / "fleet.secret"),
            "--workers 8": "--workers 2",
        }
        set_up = (
            *(f"context set {name} --bootstrap-server broker-1:9092" for name in ("prod", "lab", "prod-eu", "prod-us")),
            "alter --client app --add-config producer_byte_rate=1MB",
        )
        # Load tests first: quotas that other lines leave would take precedence over those that they set.
        lines = sorted(lines_with_servers(), key=lambda line: not line.startswith("kafka-quotas load-test"))
        for line in (*(f"kafka-quotas {each}" for each in set_up), *lines):
            argv = shlex.split(BROKERS.sub(kafka4.bootstrap, _replaced(OURS.sub("", line), addresses)))[1:]
            if trouble := _run_line(argv, environment):
                failed.append((line, trouble))
    finally:
        daemon.stop()
    assert not failed, "\n".join(map(str, failed))


def _replaced(line: str, addresses: Mapping[str, str]) -> str:
    for shown, real in addresses.items():
        line = line.replace(shown, real)
    return line


def _run_line(argv: list[str], environment: dict[str, str]) -> str:
    """Run a command until it ends, or until it serves, and return what went wrong."""
    if argv[:2] == ["daemon", "run"]:
        code = DaemonProcess([*argv[2:], *ANYWHERE], environment=environment).stop()
        return f"exit code {code}" * bool(code)
    if argv[0] in ("ui", "exporter"):
        return _run_page([*argv, "--listen", "0"], environment)
    added = next((more for name, more in SHORTER.items() if re.match(name, " ".join(argv))), ())
    code, _, err = run_cli(*argv, *added, environment=environment)
    return (
        "" if code == 0 or (code in (1, 3) and argv[0] in FINDS and "error:" not in err) else f"exit code {code}: {err}"
    )


def _run_page(argv: list[str], environment: dict[str, str]) -> str:
    page = ForkedProgram(argv, {**os.environ, **environment})
    with page.stderr:
        try:
            said = page.stderr.readline()
            page.terminate()
            code = page.wait(60)
            serves = re.search(r"(the page is|metrics) at http://127\.0\.0\.1:", said)
            return "" if code == 0 and serves else f"exit code {code}: {said}"
        finally:
            page.kill()
