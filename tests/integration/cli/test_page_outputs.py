"""What pages show of commands that need a cluster is what they print: servers `kafka4`."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.brokers.servers import Kafka
from tests.support.processes.run_cli import run_cli

DOCS = Path(__file__).parents[3] / "docs"
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
        code, out, err = run_cli(*shlex.split(line.replace("localhost:9092", cluster))[2:])
        assert code == 0
        of_others = [each for each in out.splitlines() if "user-principal" in each and "'alice'" not in each]
        printed += [line, *(each for each in (out + err).splitlines() if each not in of_others)]
    assert printed == lines


def test_the_page_on_history_shows_what_watch_prints(cluster: str) -> None:
    command, *shown = block("how-to/history.md", "watch")
    server = ("--bootstrap-server", cluster)
    assert run_cli("alter", "--user", "alice", "--add-config", "producer_byte_rate=2MiB", *server)[0] == 0
    argv = shlex.split(command.replace("kafka1:9092", cluster))[2:]
    with subprocess.Popen(
        [sys.executable, "-m", "kafka_quotas", *argv, "--count", "2", "--duration", "60s"],
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
