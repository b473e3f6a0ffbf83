"""The entry point: the table of commands, and the one place where an error becomes a message and an exit code."""

import errno
import io
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, get_args

import typer

from kafka_quotas.cli.completion import COMPLETE_VARIABLE
from kafka_quotas.cli.framework.commands import RUNNING, Invocation, LazyGroup, Verbose
from kafka_quotas.cli.framework.help_page import GENERAL_HEADING, hint_for_removed
from kafka_quotas.cli.framework.option_groups import option_info, parameter
from kafka_quotas.cli.output.render import coloured_message, shown_cell
from kafka_quotas.core.errors import CLOSED_PIPE, INTERRUPTED, KafkaQuotasError

PROGRAM = "kafka-quotas"
DEBUG_VARIABLE = "KAFKA_QUOTAS_DEBUG"
"""Set to 1, it shows the traceback of any error, as --verbose does."""
DROP_IN = "kafka-configs"
"""A command, and the name of a link through which the program may be started as if it was that command."""

COMMANDS = {
    "alter": ("quotas.alter:alter", "Set or remove quotas of one entity."),
    "describe": ("quotas.describe:describe", "Show stored quotas, or which quotas a client really gets."),
    "revert": ("quotas.revert:revert", "Undo a change, or temporary changes that have expired."),
    "export": ("declarative.files:export", "Write stored quotas as a file that apply or another tool reads."),
    "import": ("declarative.files:import_", "Print quotas of other tools' files as a file that apply reads."),
    "validate": ("declarative.files:validate", "Check files of quotas without a store."),
    "diff": ("declarative.apply:diff", "Show what differs between files and a store, and for whom."),
    "apply": ("declarative.apply:apply", "Bring a store to what files declare."),
    "watch": ("quotas.whole_stores:watch", "Print changes of a store as they happen."),
    "migrate": ("quotas.whole_stores:migrate", "Copy all quotas of one store into another."),
    "context": ("context:app", "Name clusters and switch between them."),
    "kafka-configs": ("kafka_configs:kafka_configs", "Set and show quotas as Kafka's own kafka-configs does."),
    "tree": ("insight.why:tree", "Draw stored quotas as a tree: what wins, what is shadowed."),
    "doctor": ("insight.why:doctor", "Check stored or declared quotas for problems."),
    "why": ("insight.why:why", "Explain whether quotas slow a client down."),
    "top": ("insight.top:top", "Show who uses how much of which quota, live."),
    "ui": ("insight.top:ui", "Serve a page for browsers: who is throttled, and what changed."),
    "exporter": ("declarative.exporter:exporter", "Serve a cluster's quotas and their use as Prometheus metrics."),
    "throttle": ("throttle:app", "Calculate rates, delays and bursts as Kafka does."),
    "daemon": ("daemon.command:app", "Enforce quotas in a proxy in front of brokers."),
    "load-test": ("load_test:app", "Put load on a cluster and judge whether the quotas hold."),
    "pipeline": ("pipeline:app", "Turn recorded traffic into usage and quotas."),
    "examples": ("help_topics:app", "List the examples that come with it, and copy them."),
    "help": ("help_topics:help_", "Show the help of a command, or explain a topic."),
    "completion": ("help_topics:completion", "Print a completion script."),
    "demo": ("demos.enforcement:demo", "Show it all in under a minute, on an embedded cluster."),
}
"""Every command: name, where it is, one line of help. A new command is a new row and a new module."""

_OUTPUT_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
"""What writing to a full, broken or closed device ends in; files that we open ourselves have errors of their own."""


class ProgramCommands(LazyGroup):
    """The commands of `COMMANDS`."""

    headings: ClassVar[Mapping[str, Sequence[str]]] = {
        "Quotas": ("alter", "describe", "revert", "tree", "doctor", "kafka-configs"),
        "Files and stores": ("export", "import", "validate", "diff", "apply", "migrate", "context"),
        "Live": ("watch", "top", "why", "ui", "exporter"),
        "Enforce": ("daemon", "throttle"),
        "Prove": ("load-test", "demo"),
        "Plan": ("pipeline",),
        "Help and setup": ("help", "examples", "completion"),
    }

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options before the command."""
        if args == ["version"]:  # as most programs have it
            args = ["--version"]
        return super().parse_args(ctx, args)


def _print_version(value: bool) -> None:
    if value:
        from importlib.metadata import version  # noqa: PLC0415 - 20 ms that only --version pays for
        from importlib.util import find_spec  # noqa: PLC0415 - as above

        hot_path = find_spec("kafka_quotas.enforcement.session.session")
        is_pure = hot_path is None or (hot_path.origin or "").endswith(".py")
        typer.echo(f"{PROGRAM} {version(PROGRAM)} ({'pure Python' if is_pure else 'compiled'})")
        raise typer.Exit


def _print_help_json(value: bool) -> None:
    if value:
        from kafka_quotas.cli.help_topics import help_json  # noqa: PLC0415 - loads every command

        typer.echo(help_json(app, PROGRAM))
        raise typer.Exit


def _option(*names: str, text: str, callback: Callable[[bool], None]) -> Any:
    declared = option_info(*names, rich_help_panel=GENERAL_HEADING, help=text, callback=callback, is_eager=True)
    return parameter(names[0].removeprefix("--").replace("-", "_"), bool, False, declared)


app = ProgramCommands(
    """Set, explain, enforce and prove Apache Kafka client quotas.

    Quotas live in a store: the local one unless --store, --bootstrap-server, --zookeeper, the variable
    KAFKA_QUOTAS_STORE or a context names another. Start with `kafka-quotas demo`.
    """,
    COMMANDS,
    params=[
        _option(
            "--version", "-V", text="Print the version and whether it is compiled, and stop.", callback=_print_version
        ),
        _option("--help-json", text="Print all commands and options as JSON and stop.", callback=_print_help_json),
        parameter("verbose", bool, False, get_args(Verbose)[1]),
    ],
    context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 1000},  # the width is the terminal's
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code: 0 done, 1 failed, 2 wrong usage, 130 interrupted."""
    session = Invocation(verbose=os.environ.get(DEBUG_VARIABLE, "") not in ("", "0"))
    RUNNING.set(session)
    _replace_closed_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):  # a letter that the terminal's encoding lacks is escaped, as on stderr
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        if argv is None:
            through_link = Path(sys.argv[0]).stem == DROP_IN  # `kafka-configs.sh` too
            argv = [DROP_IN, *sys.argv[1:]] if through_link else sys.argv[1:]
        code = _run(argv)
        sys.stdout.flush()  # a closed pipe shows here, not in the interpreter's shutdown
    except KafkaQuotasError as error:
        own = [line for part in error.parts for line in _lines(part.message, part.hint)]
        lines = session.error_lines(error) if session.error_lines else own
        return _report(lines, code=error.exit_code, session=session)
    except typer.TyperException as error:
        return _report_usage(error, session)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the boundary: a defect must not end in a traceback either
        return _report_unforeseen(error, session)
    return code


class _ClosedOutput(io.TextIOBase):
    """Standard output that the caller has closed, so that a result can't be written, as most programs say."""

    def write(self, _: str) -> int:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))


def _replace_closed_streams() -> None:
    """Replace streams that the caller has closed: messages are lost, and a result is an error."""
    if sys.stdout is None:
        sys.stdout = _ClosedOutput()
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115


def _run(argv: Sequence[str]) -> int:
    if COMPLETE_VARIABLE in os.environ:
        # Only a Tab pays for it. Typer learns the shells so, without options of its own for completion.
        from typer.completion import completion_init  # type: ignore[attr-defined]  # noqa: PLC0415

        completion_init()
    try:
        result = app.main(list(argv), prog_name=PROGRAM, standalone_mode=False)
    except SystemExit as stop:  # Typer's own ending: completion, or a reader that closed the pipe
        if isinstance(stop.__context__, BrokenPipeError):
            return _quiet_output(CLOSED_PIPE)
        return stop.code if isinstance(stop.code, int) else 0
    return result if isinstance(result, int) else 0


def _lines(message: str, hint: str | None) -> list[str]:
    return [f"error: {message}", f"hint: {hint}"] if hint else [f"error: {message}"]


def _report(lines: Sequence[str], *, code: int, session: Invocation) -> int:
    if session.verbose:
        import traceback  # noqa: PLC0415 - only a failed run pays for it

        traceback.print_exc()
    for line in lines:
        print(coloured_message(shown_cell(line), sys.stderr), file=sys.stderr)  # noqa: T201 - the boundary speaks to the user
    return code


def _report_usage(error: typer.TyperException, session: Invocation) -> int:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else PROGRAM
    if type(error).__name__ == "NoArgsIsHelpError":  # the class is private to Typer; its message is the help text
        print(error.format_message(), file=sys.stderr)  # noqa: T201
        return error.exit_code
    near = getattr(error, "possibilities", None)  # Typer lists three, of which the first is the nearest
    text = error.message if near else error.format_message()
    message = " ".join(text.split()).rstrip(".")
    lowered = message[:1].lower() + message[1:]
    hint = f"did you mean {near[0]}?" if near else f"{path} --help"
    if path == PROGRAM and hasattr(error, "option_name"):
        hint = "the command comes before its options: kafka-quotas COMMAND --help"
    return _report(_lines(lowered, hint_for_removed(error, path) or hint), code=error.exit_code, session=session)


def _report_unforeseen(error: Exception, session: Invocation) -> int:
    """Return exit code 1 for a full or closed standard output and for a defect.

    A closed pipe is not reported, and has a code of its own.
    """
    if isinstance(error, BrokenPipeError):
        return _quiet_output(CLOSED_PIPE)
    if isinstance(error, OSError) and error.errno in _OUTPUT_ERRORS and error.filename is None:
        hint = "everything else was done; show the result again, into an output that takes it"
        _report(_lines(f"can't write the output: {error.strerror}", hint), code=1, session=session)
        return _quiet_output(1)
    hint = f"this is a defect of kafka-quotas; run it again with {DEBUG_VARIABLE}=1 for the traceback, and report that"
    return _report(_lines(f"internal error: {type(error).__name__}: {error}", hint), code=1, session=session)


def _quiet_output(code: int) -> int:
    """Return the exit code and send the interpreter's last flush to the null device."""
    if isinstance(sys.stdout, _ClosedOutput):
        return code
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
    return code
