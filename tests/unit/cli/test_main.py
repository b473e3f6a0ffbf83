"""The entry point: help, exit codes, and how errors are told."""

import io
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.support.processes.run_cli import done, refused, run_cli
from tests.support.stores.stored_quotas import new_store

from kafka_quotas.cli.main import COMMANDS, main
from kafka_quotas.core.errors import KafkaQuotasError, UsageError, VerdictError
from kafka_quotas.core.model.entity import Entity

HEAVY = (
    *("confluent_kafka", "kafka", "kazoo", "matplotlib", "uvloop", "prometheus_client", "hdrh", "numpy"),
    *("yaml", "sqlite3", "rich", "tabulate", "pydantic", "asyncio", "platformdirs"),
)


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Makes `kafka-quotas demo` run a function of the test."""

    def put(run: Callable[[], object]) -> None:
        def command() -> object:
            """Run what the test wants."""
            return run()

        name, _, attribute = f"kafka_quotas.cli.{COMMANDS['demo'][0]}".partition(":")
        module = ModuleType(name)
        setattr(module, attribute, command)
        monkeypatch.setitem(sys.modules, name, module)

    return put


def raising(error: BaseException) -> Callable[[], object]:
    def run() -> object:
        raise error

    return run


def test_help_names_every_command_and_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom kafka_quotas.cli.main import main\nassert main(['--help']) == 0\n"
        f"print('LOADED', sorted(set(sys.modules) & set({HEAVY!r})))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240)
    assert done.stdout.splitlines()[-1] == "LOADED []"
    for name, (_, text) in COMMANDS.items():
        assert f"  {name} " in done.stdout
        assert text in done.stdout


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_goes_to_standard_output(option: str) -> None:
    out = done(option)
    assert out.startswith("Usage: kafka-quotas")


def test_no_arguments_is_wrong_usage_with_the_help() -> None:
    err = refused()
    assert err.startswith("Usage: kafka-quotas")


@pytest.mark.parametrize("word", ["--version", "-V", "version"])
def test_version_is_that_of_the_package(word: str) -> None:
    assert run_cli(word) == (0, f"kafka-quotas {version('kafka-quotas')} (pure Python)\n", "")


def test_a_misspelt_command_is_answered_with_the_right_one() -> None:
    err = refused("altr")
    assert err == "error: no such command 'altr'. Did you mean 'alter'?\nhint: kafka-quotas --help\n"


def test_a_wrong_option_points_to_the_help_of_the_command() -> None:
    err = refused("describe", "--nonsense")
    assert err == "error: no such option: --nonsense\nhint: kafka-quotas describe --help\n"
    assert run_cli("alter", "--usr", "x")[2] == "error: no such option: --usr\nhint: did you mean --user?\n"


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (KafkaQuotasError("broken"), 1, "error: broken\n"),
        (UsageError("meant otherwise", hint="try this"), 2, "error: meant otherwise\nhint: try this\n"),
        (VerdictError("not held"), 1, "error: not held\n"),
        (KafkaQuotasError("a\nb\x1b[31m \u00e4"), 1, "error: a\\nb\\x1b[31m \u00e4\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_errors_become_messages_and_exit_codes(
    install: Callable[[Callable[[], object]], None], error: BaseException, code: int, told: str
) -> None:
    install(raising(error))
    assert run_cli("demo") == (code, "", told)


def test_a_defect_is_told_without_a_traceback(install: Callable[[Callable[[], object]], None]) -> None:
    install(raising(ZeroDivisionError("by zero")))
    code, _, err = run_cli("demo")
    assert code == 1
    assert err.startswith("error: internal error: ZeroDivisionError: by zero\nhint: ")
    assert "Traceback" not in err


@pytest.mark.parametrize("error", [ZeroDivisionError("by zero"), KafkaQuotasError("broken")])
@pytest.mark.parametrize(
    ("argv", "debug"), [(("demo", "--verbose"), "0"), (("--verbose", "demo"), ""), (("demo",), "1")]
)
def test_the_traceback_is_shown_on_request(
    install: Callable[[Callable[[], object]], None], error: Exception, argv: tuple[str, ...], debug: str
) -> None:
    install(raising(error))
    code, _, err = run_cli(*argv, environment={"KAFKA_QUOTAS_DEBUG": debug})
    assert code == 1
    assert err.startswith("Traceback (most recent call last):")
    assert "\nerror: " in err


@pytest.mark.parametrize(("result", "code"), [(None, 0), (0, 0), (3, 3)])
def test_a_command_may_return_its_exit_code(
    install: Callable[[Callable[[], object]], None], result: object, code: int
) -> None:
    install(lambda: result)
    assert run_cli("demo") == (code, "", "")


def process(command: str, output: Any, *, store: str = "", **environment: str) -> tuple[int, list[str]]:
    """The exit code of the program in a process of its own, and its messages without notes."""
    done = subprocess.run(
        [sys.executable, "-m", "kafka_quotas", *command.split()],
        env={**os.environ, "KAFKA_QUOTAS_STORE": store, **environment},
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=240,
    )
    return done.returncode, [line for line in done.stderr.splitlines() if not line.startswith("note: ")]


@pytest.fixture
def store(tmp_path: Path) -> str:
    return new_store(tmp_path, {Entity.of(user="\u00fcn\u00ef"): {"producer_byte_rate": 1e6}})


@pytest.mark.parametrize("command", ["--help", "examples list", "export"])
def test_a_reader_that_has_enough_ends_every_command_alike(command: str, store: str) -> None:
    """As a program that SIGPIPE ends does: no message, and the exit code that shells give it."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        assert process(command, pipe, store=store) == (141, [])


@pytest.mark.parametrize(("closed", "code"), [("1", 1), ("2", 0)])
def test_a_closed_output_is_an_error_and_closed_messages_are_not(closed: str, code: int, store: str) -> None:
    """`kafka-quotas ... >&-`: Python then has no stream at all."""
    command = [sys.executable, "-m", "kafka_quotas", "describe", "--store", store]
    shell = ["/bin/sh", "-c", f'exec "$@" {closed}>&-', "sh", *command]
    done = subprocess.run(shell, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == code
    assert ("error: can't write the output: Bad file descriptor" in done.stderr) == bool(code)
    assert "internal error" not in done.stderr


def test_output_that_finds_no_room_is_told_in_one_line(store: str) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        code, (error, hint) = process("describe", full, store=store)
    assert (code, error) == (1, "error: can't write the output: No space left on device")
    assert hint.startswith("hint: ")


def test_main_reads_the_arguments_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/anywhere/kafka-quotas", "--version"])
    with redirect_stdout(io.StringIO()) as out:
        assert main() == 0
    assert out.getvalue().startswith("kafka-quotas ")


@pytest.mark.parametrize(
    ("library", "is_taken_down"), [("pyarrow", False), ("confluent_kafka", False), ("typer", True)]
)
def test_a_process_with_threads_of_libraries_ends_before_its_objects_are_taken_down(
    library: str, is_taken_down: bool
) -> None:
    code = (
        "import sys; from kafka_quotas.cli.start import end_process\n"
        f"sys.modules[{library!r}] = sys\n"
        "class Late:\n    def __del__(self): sys.stderr.write('taken down')\n"
        "late = Late(); print('done'); end_process(3)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=240)
    assert (done.returncode, done.stdout) == (3, "done\n")
    assert done.stderr == "taken down" * is_taken_down


@pytest.mark.parametrize("command", ["describe", "tree"])
@pytest.mark.parametrize("utf8_mode", ["0", "1"])
def test_every_command_shows_a_name_alike_where_the_locale_has_no_letters(
    utf8_mode: str, command: str, store: str, tmp_path: Path
) -> None:
    with (tmp_path / "out").open("wb") as output:
        settings = {"LC_ALL": "C", "PYTHONUTF8": utf8_mode, "PYTHONCOERCECLOCALE": "0"}
        assert process(command, output, store=store, **settings)[0] == 0
    name = "\u00fcn\u00ef".encode() if utf8_mode == "1" else rb"\xfcn\xef"
    assert b"user " + name in (tmp_path / "out").read_bytes()
