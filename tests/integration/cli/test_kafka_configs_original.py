"""The same command lines for Kafka's own ConfigCommand and for ours, on one broker: what is printed and stored.

The original alters one name and we another; both are then told as NAME. Of an error its lines above the stack trace
count, of ours those that are no warning, note or hint.
"""

import os
import re
import shlex
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.brokers.java_process import java_command
from tests.support.brokers.servers import Kafka
from tests.support.processes.run_cli import run_cli
from tests.support.stores.stored_quotas import store_quotas

from kafka_quotas.core.java import double_text
from kafka_quotas.core.model.entity import EVERYTHING, Entity
from kafka_quotas.stores import open_store
from kafka_quotas.stores.store import Alteration

ORIGINAL = "kafka.admin.ConfigCommand"
OURS_ALONE = ("warning: ", "note: ", "hint: ")
BYTES = "producer_byte_rate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is stored before (for `--user`, `--client` or `--ip` NAME), and the arguments that follow the address."""

    arguments: tuple[str, ...]
    before: tuple[str, ...] = ()


ALTERATIONS = {
    "user": Case(arguments=("--user", "NAME", "--add-config", f"{BYTES}=1048576,request_percentage=12.5")),
    "user and default client": Case(
        arguments=("--entity-type", "users", "--entity-name", "NAME", "--entity-type", "clients", "--entity-default",
                   "--add-config", "consumer_byte_rate=[2048]"),
    ),
    "empty name": Case(arguments=("--client", "NAME", "--user", "", "-add-config", f" {BYTES} = 1e3 ,")),
    "set and remove": Case(
        before=("--client", "NAME", "--add-config", f"{BYTES}=5"),
        arguments=("--client=NAME", "--add-config=controller_mutation_rate=2d", "--delete-config", BYTES),
    ),
    "NaN": Case(arguments=("--client", "NAME", "--add-config", f"{BYTES}=NaN,request_percentage=Infinity")),
    "zero": Case(arguments=("--client", "NAME", "--add-config", f"{BYTES}=0")),
    "a key twice": Case(
        before=("--client", "NAME", "--add-config", f"{BYTES}=5"),
        arguments=("--client", "NAME", "--add-config", f"{BYTES}=1", "--delete-config", BYTES),
    ),
    "not set": Case(arguments=("--user", "NAME", "--delete-config", BYTES)),
    "ip": Case(arguments=("--entity-type", "ips", "--entity-name", "NAME", "--add-config",
                          "connection_creation_rate=100")),
    "nothing": Case(arguments=("--user", "NAME", "--add-config", ",")),
}  # fmt: skip


@pytest.fixture(autouse=True)
def removed_afterwards(kafka4: Kafka) -> Iterator[None]:
    """Leaves the broker without the quotas of these tests: NaN and defaults could surprise others."""
    store = open_store(f"kafka://{kafka4.bootstrap}")
    before = {entry.entity for entry in store.describe(EVERYTHING)}
    yield
    added = [entry for entry in store.describe(EVERYTHING) if entry.entity not in before]
    store.alter([Alteration(entity=entry.entity, changes=dict.fromkeys(entry.quotas)) for entry in added])
    store.close()


@pytest.mark.parametrize("case", ALTERATIONS.values(), ids=ALTERATIONS)
def test_an_alteration_prints_and_stores_the_same(kafka4: Kafka, case: Case) -> None:
    outcomes = []
    for run in (run_original, run_ours):
        name = _fresh_name(for_ip="ip" in " ".join(case.arguments))
        if case.before:
            assert run_cli("kafka-configs", *_at(kafka4), "--alter", *_named(case.before, name))[0] == 0
            _wait_until_visible(kafka4, name)
        code, out, err = run(kafka4, *_at(kafka4), "--alter", *_named(case.arguments, name))
        told = [text.replace(name, "NAME") for text in (out, *err)]
        outcomes.append((code, told, _stored(kafka4, name)))
    assert outcomes[1] == outcomes[0]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--entity-type", "users"),
        ("--entity-type", "users", "--entity-type", "clients"),
        ("--user-defaults",),
    ],
    ids=" ".join,
)
def test_describing_prints_the_same_lines(kafka4: Kafka, unique_name: str, arguments: tuple[str, ...]) -> None:
    for entity in (("--user", unique_name), ("--user", f"{unique_name} é", "--client", ""), ("--user-defaults",)):
        assert run_cli("kafka-configs", *_at(kafka4), "--alter", *entity, "--add-config", f"{BYTES}=10485760")[0] == 0
    theirs = run_original(kafka4, *_at(kafka4), "--describe", *arguments)
    ours = run_ours(kafka4, *_at(kafka4), "--describe", *arguments)
    assert (ours[0], _quota_lines(ours[1]), ours[2]) == (theirs[0], _quota_lines(theirs[1]), theirs[2])
    assert (unique_name in ours[1]) is (arguments[0] == "--entity-type")


REFUSED: tuple[tuple[str, ...], ...] = (
    ("--describe",),
    ("--describe", "--entity-type", "users"),
    ("--describe", "--entity-type", "nothing"),
    ("--alter", "--user", "a", "--add-config", f"{BYTES}=1"),
    ("BROKER", "--describe", "--entity-type", "nothing"),
    ("BROKER", "--describe", "--entity-type", "users", "--entity-type", "users"),
    ("BROKER", "--bootstrap-controller", "127.0.0.1:1", "--describe", "--entity-type", "users"),
    ("BROKER", "--alter", "--user", "a", "--add-config", BYTES),
    ("BROKER", "--alter", "--user", "a", "--add-config", f"{BYTES}=1,5"),
    ("BROKER", "--alter", "--user", "a", "--add-config", f"{BYTES}=[1,5"),
    ("BROKER", "--alter", "--user", "a", "--add-config-file", "/no/such/file"),
    ("BROKER", "--alter", "--user", "a", "--add-config-file", "/etc"),
    ("BROKER", "--command-config", "/no/such/file", "--describe", "--user", "a"),
)
"""What is refused before a broker is asked; `BROKER` is its address."""


def test_refusals_are_told_in_the_same_words(kafka4: Kafka) -> None:
    lines = [
        [word for each in arguments for word in (_at(kafka4) if each == "BROKER" else (each,))] for arguments in REFUSED
    ]
    theirs = [run_original(kafka4, *arguments) for arguments in lines]
    assert [run_ours(kafka4, *arguments) for arguments in lines] == theirs


def test_wrong_usage_is_told_the_same(kafka4: Kafka) -> None:
    theirs, ours = run_original(kafka4), run_ours(kafka4)
    assert (ours[0], ours[1], ours[2][:1]) == (theirs[0], theirs[1], theirs[2][:1])  # the list of options is our own


def test_the_version_is_told_first_as_the_original_tells_it(kafka4: Kafka) -> None:
    theirs, ours = run_original(kafka4, "--version"), run_ours(kafka4, "--version")
    assert (ours[0], ours[2]) == (theirs[0], theirs[2])
    assert ours[1].split()[0] == theirs[1].split()[0]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--describe", "--entity-type", "users"),
        ("--describe", "--user", "NAME"),
        ("--alter", "--user", "NAME", "--add-config", f"{BYTES}=1,consumer_byte_rate=2"),
    ],
    ids=" ".join,
)
def test_zookeeper_says_the_same(kafka3: Kafka, unique_name: str, arguments: tuple[str, ...]) -> None:
    set_up = ("--alter", "--user", unique_name, "--add-config", f"{BYTES}=1024,request_percentage=1e7")
    assert run_cli("kafka-configs", *_at(kafka3), *set_up)[0] == 0
    asked = ("--zookeeper", kafka3.zookeeper_url.removeprefix("zk://"), *_named(arguments, unique_name))
    theirs, ours = run_original(kafka3, *asked), run_ours(kafka3, *asked)
    without_credentials = [line for line in theirs[1].splitlines() if "SCRAM" not in line]
    assert (ours[0], sorted(ours[1].splitlines()), ours[2]) == (theirs[0], sorted(without_credentials), theirs[2])


def test_the_original_runs_an_exported_script(kafka4: Kafka, unique_name: str, tmp_path: Path) -> None:
    content = {
        Entity.of(user=f"{unique_name} it's $1", client_id=None): {BYTES: 1048576.0, "request_percentage": 12.5},
        Entity.of(client_id=f'{unique_name}"a,b"é'): {"controller_mutation_rate": 0.5},
        Entity.of(ip=_fresh_name(for_ip=True)): {"connection_creation_rate": 5.0},
    }
    store_quotas(f"local:{tmp_path / 'quotas.db'}", content)
    script = tmp_path / "quotas.sh"
    assert run_cli("export", "--out", str(script), "--store", f"local:{tmp_path / 'quotas.db'}")[0] == 0
    program = tmp_path / "kafka-configs.sh"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(java_command(kafka4.jars, ORIGINAL, []))} "$@"\n')
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "BOOTSTRAP_SERVER": kafka4.bootstrap}
    done = subprocess.run(["sh", script], env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stdout.count("Completed updating config")) == (0, 3), done.stderr
    _wait_until_visible(kafka4, unique_name)
    assert run_cli("diff", str(script), *_at(kafka4), "--exit-code")[:2] == (0, "")


def run_original(kafka: Kafka, *arguments: str) -> tuple[int, str, list[str]]:
    """Exit code, standard output, and the lines on standard error above the stack trace, of Kafka's own program."""
    done = kafka.run_tool(ORIGINAL, arguments)
    told = [line for line in done.stderr.splitlines() if not re.match(r"\s|log4j:|Caused by: |\[?\d{4}-", line)]
    return done.returncode, done.stdout, told


def run_ours(_: Kafka, *arguments: str) -> tuple[int, str, list[str]]:
    """Exit code, standard output, and the lines on standard error that the original has too."""
    code, out, err = run_cli("kafka-configs", *arguments)
    return code, out, [line for line in err.splitlines() if not line.startswith(OURS_ALONE)]


def _at(kafka: Kafka) -> tuple[str, str]:
    return "--bootstrap-server", kafka.bootstrap


def _named(arguments: Sequence[str], name: str) -> list[str]:
    return [argument.replace("NAME", name) for argument in arguments]


def _fresh_name(*, for_ip: bool) -> str:
    number = uuid.uuid4().bytes
    return f"10.{number[0]}.{number[1]}.{number[2]}" if for_ip else f"t{number.hex()[:12]}"


def _stored(kafka: Kafka, name: str) -> list[tuple[list[tuple[str, str | None]], list[tuple[str, str]]]]:
    """What is stored for entities with this name, told as NAME.

    Values as texts, for NaN is not equal to itself.
    """
    _wait_until_visible(kafka, name)
    store = open_store(f"kafka://{kafka.bootstrap}")
    entries = [entry for entry in store.describe(EVERYTHING) if _has(entry.entity, name)]
    store.close()
    return [
        (
            [(kind, "NAME" if part == name else part) for kind, part in entry.entity.parts],
            sorted((key, double_text(value)) for key, value in entry.quotas.items()),
        )
        for entry in entries
    ]


def _wait_until_visible(kafka: Kafka, name: str) -> None:
    """Wait until the broker shows all that was altered before: changes become visible one after the other."""
    store_quotas(f"kafka://{kafka.bootstrap}", {Entity.of(user=f"after {name}"): {BYTES: 1.0}})


def _has(entity: Entity, name: str) -> bool:
    return any(part == name for _, part in entity.parts)


def _quota_lines(out: str) -> list[tuple[str, list[str]]]:
    """The lines about quotas, in one order, with the pairs of each in one order."""
    lines = [line.rpartition(" are ") for line in out.splitlines() if not line.startswith("SCRAM credential")]
    return sorted((entity, sorted(pairs.split(", "))) for entity, _, pairs in lines)


def test_the_link_is_the_original_by_name(tmp_path: Path) -> None:
    link = tmp_path / "kafka-configs"
    link.symlink_to(Path(sys.executable).with_name("kafka-quotas"))
    done = subprocess.run(
        [link, "--bootstrap-server", "127.0.0.1:1", "--alter", "--user", "a", "-add-config", "x=1"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "Only quota and SCRAM credential configs can be added for 'users' using --bootstrap-server. "
        "Unexpected config names: Set(x)\n"
    )
