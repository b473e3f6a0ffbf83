"""Completion without Typer: the answers that Typer gives, and nothing large imported for them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from generators.documentation.documents import commands
from tests.support.processes.run_cli import run_cli
from tests.support.stores.stored_quotas import new_store
from typer.core import TyperOption

from kafka_quotas.cli.completion.values import OF_ITSELF, OF_THE_STORE, quick_answer
from kafka_quotas.cli.start import main as start
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.stores.files.journal import Journal

LINES = [
    "describe --store STORE --user ",
    "describe --store=STORE --user a",
    "alter --store STORE --ip 1",
    "describe --store STORE --entity-type users --entity-type clients --entity-name ",
    "describe --store STORE --entity-type nonsense --entity-name ",
    "alter --entity-type ",
    "alter --user x --add-config producer_byte_rate=1,con",
    "alter --user x --delete-config consumer_byte_rate,re",
    "describe --store ",
    "describe --store z",
    "describe --context p",
    "context use ",
    "context remove p",
    "describe --store STORE --user 'al",
    "describe --user nobody --store STORE --client ap",
]


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Contexts of its own, and the address of a store with names that shells make trouble with."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    store = new_store(
        tmp_path,
        {
            Entity.of(user="alice"): {"producer_byte_rate": 1.0},
            Entity.of(user="al ice:\"'$`x"): {"producer_byte_rate": 1.0},
            Entity.of(client_id="app"): {"producer_byte_rate": 1.0},
            Entity.of(ip="10.0.0.1"): {"connection_creation_rate": 1.0},
        },
    )
    assert run_cli("context", "set", "prod", "--store", store)[0] == 0
    return {"STORE": store}


@pytest.mark.parametrize(
    ("shell", "line"),
    [("bash", line) for line in LINES] + [(shell, line) for shell in ("zsh", "fish") for line in (LINES[0], LINES[-1])],
)
def test_the_answer_is_typers(environment: dict[str, str], line: str, shell: str) -> None:
    typed = f"kafka-quotas {line.replace('STORE', environment['STORE'])}"
    for action in ("get-args", "is-args") if shell == "fish" else ("",):
        told = {
            "COMP_WORDS": typed,
            "COMP_CWORD": str(len(typed.split(" ")) - 1),
            "_TYPER_COMPLETE_ARGS": typed,
            "_TYPER_COMPLETE_FISH_ACTION": action,
        }
        answer = quick_answer(f"complete_{shell}", told)
        code, out, _ = run_cli(environment={**told, "_KAFKA_QUOTAS_COMPLETE": f"complete_{shell}"})
        assert answer is not None
        plain = answer[0].replace("\\", "") if shell == "bash" else answer[0]  # bash wants marks escaped
        assert (plain, answer[1]) == (out, code)


@pytest.mark.parametrize(
    "line", ["", "des", "describe --us", "describe --user", "daemon ", "describe -- --user ", "x y "]
)
def test_what_typer_knows_better_is_left_to_it(line: str) -> None:
    typed = f"kafka-quotas {line}"
    told = {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split(" ")) - 1)}
    assert quick_answer("complete_bash", told) is None


def test_an_option_is_completed_alike_everywhere() -> None:
    known = {**OF_THE_STORE, **OF_ITSELF}
    for command, context in commands():
        for parameter in command.params:
            for name in set(parameter.opts) & set(known):
                assert isinstance(parameter, TyperOption)
                own = parameter.type_descriptor.parameter_info.autocompletion
                assert own in (None, known[name]), f"{context.command_path} {name}"


@pytest.mark.parametrize(
    ("instruction", "told"),
    [
        *((each, {"COMP_CWORD": "3"}) for each in ("source_bash", "complete_powershell", "complete", "")),
        ("complete_bash", {}),
    ],
)
def test_other_instructions_and_a_missing_position_are_left_to_typer(instruction: str, told: dict[str, str]) -> None:
    assert quick_answer(instruction, {"COMP_WORDS": "kafka-quotas describe --user ", **told}) is None


def test_nothing_large_is_imported(environment: dict[str, str]) -> None:
    code = (
        "import os, sys\n"
        f"os.environ.update(_KAFKA_QUOTAS_COMPLETE='complete_bash', COMP_CWORD='5',\n"
        f"    COMP_WORDS='kafka-quotas describe --store {environment['STORE']} --user ali')\n"
        "from kafka_quotas.cli.start import main\n"
        "assert main() == 0\n"
        "print([name for name in ('typer', 'rich', 'kazoo', 'kafka') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240)
    assert done.stdout == "alice\n[]\n"


def test_a_prompt_never_sees_an_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setenv("_KAFKA_QUOTAS_COMPLETE", "complete_bash")
    monkeypatch.setattr("kafka_quotas.cli.completion.values.quick_answer", broken)
    assert start() == 1
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("describe --store STORE --user ali", ["alice"]),
        ("describe --store=STORE --user=ali", ["alice"]),
        ("describe --store=STORE --user=", [r"al\ ice:\"\'\$\`x", "alice"]),
        ("describe --store STORE --user 'al ice:", ["al ice:\"'$`x"]),
        ("describe --store loc", ["local:"]),
        ("alter --add-config producer_byte_rate=1,cons", ["1,consumer_byte_rate="]),
    ],
)
def test_words_that_bash_breaks_at_its_own_marks_are_made_whole(
    environment: dict[str, str], line: str, offered: list[str]
) -> None:
    pieces = pieces_of_bash(f"kafka-quotas {line.replace('STORE', environment['STORE'])}")
    answer = quick_answer("complete_bash", {"COMP_WORDS": "\n".join(pieces), "COMP_CWORD": str(len(pieces) - 1)})
    assert answer is not None
    assert sorted(answer[0].splitlines()) == sorted(offered)


def pieces_of_bash(line: str) -> list[str]:
    """The words of a line as bash 5 breaks it, the default marks given.

    What is in quotes stays whole.
    """
    quoted = re.findall(r"'[^']*'?|[^\s=:']+|[=:]+|\s+", line)
    pieces: list[str] = [""]
    for piece in quoted:
        if piece.isspace():
            pieces.append("")
        elif not pieces[-1]:
            pieces[-1] = piece
        else:
            pieces.append(piece)
    return pieces


def test_changes_topics_and_libraries_are_completed(
    environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = {"KAFKA_QUOTAS_JOURNAL": str(tmp_path / "journal"), "KAFKA_QUOTAS_STORE": environment["STORE"]}
    run_cli("alter", "--user", "alice", "--add-config", "producer_byte_rate=2MB", environment=journal)
    (entry,) = Journal(tmp_path / "journal").read().entries

    def offered(*words: str) -> list[str]:
        asked = {
            "_KAFKA_QUOTAS_COMPLETE": "complete_bash",
            "COMP_WORDS": " ".join(("kafka-quotas", *words)),
            "COMP_CWORD": str(len(words)),
        }
        return run_cli(environment=asked | journal)[1].split()

    assert offered("revert", "") == ["last", entry.entry_id]
    assert offered("help", "st") == ["stores"]
    assert offered("help", "context", "us") == ["use"]
    assert offered("load-test", "produce", "--client", "") == ["librdkafka", "raw"]
    assert quick_answer("complete_zsh", {"_TYPER_COMPLETE_ARGS": "kafka-quotas load-test produce --client "}) is None
