"""`kafka-quotas help`, `examples` and `completion`, and the whole command tree as JSON for `--help-json`."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from kafka_quotas.cli.completion import COMPLETE_VARIABLE
from kafka_quotas.cli.framework.commands import PagedGroup, walk_commands
from kafka_quotas.cli.framework.help_page import (
    EXIT_CODES,
    OUTPUT_HEADING,
    CommandExample,
    Parameter,
    argument_name,
    examples_of,
    parameter_sections,
    shown_value,
    spellings,
)
from kafka_quotas.cli.framework.option_groups import option_info
from kafka_quotas.cli.options.stores import OutputForm
from kafka_quotas.cli.output.listing import SCHEMA_PREFIX, Json, Output, json_text, listed
from kafka_quotas.cli.output.render import BOLD, coloured, print_listing, write
from kafka_quotas.cli.output.schemas.catalogue import SCHEMAS, documents_of_command, json_schema
from kafka_quotas.commands.examples import EXAMPLES, copy_examples, examples_folder
from kafka_quotas.core.described import Described, document_of, documents_of
from kafka_quotas.core.errors import UsageError, near_hint
from kafka_quotas.core.model.value_format import format_count

ENVIRONMENT: Final = (
    ("KAFKA_QUOTAS_STORE", "The store where no option names one."),
    ("KAFKA_QUOTAS_CONTEXT", "The context where neither an option nor KAFKA_QUOTAS_STORE names a store."),
    ("KAFKA_QUOTAS_COMMAND_CONFIG", "The file of client properties where --command-config names none."),
    ("KAFKA_QUOTAS_JOURNAL", "The journal of changes, in place of the one in the user's state folder."),
    ("KAFKA_QUOTAS_DEBUG", "If 1, an error shows its traceback."),
    ("NO_COLOR", "If set, nothing is coloured on terminals."),
)
STORES: Final = (
    ("local:PATH", "One SQLite file, for trials, preparation and the daemon; no broker reads it."),
    ("kafka://HOST:PORT,...", "A Kafka cluster (2.6 or later); --bootstrap-server HOST:PORT is short for it."),
    ("zk://HOST:PORT/CHROOT", "The ZooKeeper of a cluster up to Kafka 3.9; --zookeeper is short for it."),
    ("static:FILE", "The static quotas of KIP-13 in a properties file, read-only."),
    ("context:NAME", "The store and login of a context; --context NAME is short for it."),
)
UNITS: Final = (
    ("k, M, G, T", "Powers of 1000: 10M and 10MB are 10,000,000 bytes."),
    ("Ki, Mi, Gi, Ti", "Powers of 1024: 10MiB is 10,485,760 bytes."),
    ("/s, ps", "Per second; a byte rate means that without it as well."),
    ("b", "Bits, with /s or ps: 80Mbps is 10,000,000 bytes per second."),
    ("%", "Of one thread's time, for request_percentage: 200% is two threads."),
    ("us, ms, s, min, h", "A length of time, which needs its unit: 250us, 1.5s, 2h."),
    ("unlimited", "The largest value of a quota key, which exempts an entity."),
)
"""What may stand after a figure."""
FILES: Final = (
    ("~/.config/kafka-quotas/contexts.toml", "The contexts, and which of them is in use."),
    ("~/.local/share/kafka-quotas/quotas.db", "The local store, where nothing names another store."),
    ("~/.local/state/kafka-quotas/journal.jsonl", "The journal of changes, which revert reads."),
    ("$XDG_RUNTIME_DIR/kafka-quotas/daemon-PORT.sock", "The control socket of the daemon that listens on PORT."),
)
"""The files that commands read and write where no option and no variable names another place."""

TOPICS: Final[dict[str, tuple[str, tuple[tuple[str, str], ...], str]]] = {
    "stores": (
        "Quotas live in a store, which --store URL names:",
        STORES,
        (
            "The first of these counts: an option, KAFKA_QUOTAS_STORE, KAFKA_QUOTAS_CONTEXT, the context in use, the "
            "local store in your data folder. 'kafka-quotas context show' shows which one it is."
        ),
    ),
    "environment": (
        "Variables that commands read where no option says otherwise:",
        ENVIRONMENT,
        (
            "By one rule, every option of a service has a variable: KAFKA_QUOTAS_<COMMAND>_<OPTION> in capitals with _ "
            "for -, where the command is DAEMON (daemon run), UI (ui), EXPORTER (exporter), STREAM (pipeline stream) "
            "or APPLY (apply): KAFKA_QUOTAS_DAEMON_MODE is --mode of daemon run. Several values are separated by "
            "blanks, several files by colons, and a switch is true or false. The manual page of a command has the "
            "variable of each option."
        ),
    ),
    "exit-codes": (
        "A command ends with one of these exit codes:",
        EXIT_CODES,
        "kafka-configs has the exit codes of Kafka's own program.",
    ),
    "files": (
        "Files that commands read and write where nothing names another place:",
        FILES,
        "XDG_CONFIG_HOME, XDG_DATA_HOME and XDG_STATE_HOME stand for .config, .local/share and .local/state where set.",
    ),
    "units": (
        "A figure is plain or has a unit:",
        UNITS,
        "Values are exact: a fraction of a byte is an error. Limits hold per broker, not per cluster.",
    ),
    "schemas": (
        "The documents of --output json and yaml, and the commands that print them:",
        (),
        "kafka-quotas help schemas NAME prints the JSON schema of one. CSV has the rows of the same documents.",
    ),
}
"""What a topic says: a sentence, its rows, and a closing remark. The rows of schemas are those of the catalogue."""


def _complete_words(ctx: Any, incomplete: str) -> list[str]:
    typed: list[str] = list(ctx.params.get("words") or ())
    try:
        group = _command_context(ctx.find_root(), typed).command
    except UsageError:
        return []
    known = [*(() if typed else TOPICS), *getattr(group, "commands", ())]
    return [each for each in known if each.startswith(incomplete)]


Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="WORD", help="A topic, or the words of a command.", autocompletion=_complete_words),
]


def help_(ctx: typer.Context, words: Words = None) -> None:
    """Show the help of a command, or explain stores, environment, exit-codes, files, units or schemas."""
    if not words:
        write(f"{ctx.find_root().get_help()}\n\n{_topics(ctx)}", sys.stdout)
    elif words[0] in TOPICS and len(words) == 1:
        write(_topic(ctx, words[0]), sys.stdout)
    elif words[0] == "schemas" and len(words) == 2:
        write(json_text(json_schema(words[1])), sys.stdout)
    else:
        write(_command_context(ctx.find_root(), words).get_help(), sys.stdout)


def _topics(ctx: typer.Context) -> str:
    formatter = ctx.make_formatter()
    with formatter.section(coloured("Topics (kafka-quotas help TOPIC)", BOLD, sys.stdout)):
        formatter.write_dl([(name, intro.rstrip(":")) for name, (intro, _, _) in TOPICS.items()])
    return formatter.getvalue()


def _topic(ctx: typer.Context, name: str) -> str:
    intro, rows, remark = TOPICS[name]
    rows = rows or tuple((noun, ", ".join(each.commands)) for noun, each in sorted(SCHEMAS.items(), key=itemgetter(0)))
    formatter = ctx.make_formatter()
    formatter.write_text(coloured(intro, BOLD, sys.stdout))
    formatter.write_paragraph()
    with formatter.indentation():
        formatter.write_dl(rows)
    formatter.write_paragraph()
    formatter.write_text(remark)
    return formatter.getvalue()


def _command_context(context: Any, words: list[str]) -> Any:
    for number, word in enumerate(words):
        group = context.command
        if not isinstance(group, PagedGroup) or word not in group.commands:
            topics = TOPICS if number == 0 else ()
            listed = f"topics: {', '.join(topics)}; commands: " if topics else ""
            known = (*topics, *getattr(group, "commands", ()))
            hint = near_hint(word, known, otherwise=f"{listed}{context.command_path} --help")
            raise UsageError(f"there is no command or topic {' '.join(words)!r}", hint=hint)
        command = group.load(word)
        context = command.context_class(command, info_name=word, parent=context)
    return context


class Example(NamedTuple):
    """An example, and what it holds."""

    name: str
    about: str


def list_(*, output: OutputForm = Output.TABLE) -> None:
    """List the examples."""
    folder = examples_folder()
    rows = [Example(*each) for each in EXAMPLES.items()]
    data = {"folder": str(folder), "examples": documents_of(rows)}
    print_listing(listed("examples", data, "name!, about", rows), output)
    write(f"note: they are in {folder}; kafka-quotas examples copy NAME... copies them", sys.stderr)


def copy(
    *,
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Examples; all if none is named.")] = None,
    to: Annotated[
        Path,
        option_info("--to DIR", rich_help_panel=OUTPUT_HEADING, help="The folder to copy into, which is made."),
    ] = Path("kafka-quotas-examples"),
) -> None:
    """Copy examples into a folder, and leave files that are there alone."""
    copied = copy_examples(names or (), to)
    for path in copied:
        write(str(path), sys.stdout)
    write(f"note: {format_count(len(copied), 'file')} copied into {to}", sys.stderr)


app = PagedGroup("List the examples that come with the program, and copy them.", {"list": list_, "copy": copy})


class Shell(StrEnum):
    """The shells that complete the command."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, typer.Argument(help="Print the completion script of this shell.")]) -> None:
    """Print a completion script.

    A shell completes once it has read the script: eval "$(kafka-quotas completion bash)".
    """
    write(completion_script(shell), sys.stdout)


def completion_script(shell: str) -> str:
    """Return Typer's own script for a shell, for the shell to evaluate."""
    from typer.completion import get_completion_script  # type: ignore[attr-defined]  # noqa: PLC0415 - seldom needed

    return f"{get_completion_script(prog_name='kafka-quotas', complete_var=COMPLETE_VARIABLE, shell=shell)}\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterHelp:
    """An option or an argument of a command."""

    heading: str
    kind: Annotated[str, Described(choices=("option", "argument"))]
    names: tuple[str, ...]
    value: Annotated[str | None, Described(text="how help names it; null for a switch")]
    required: bool
    repeatable: bool
    default: Annotated[Any, Described(text="null where there is none, or where each run finds it")]
    variable: Annotated[str | None, Described(text="its environment variable")]
    help: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandHelp:
    """A command or a group of commands."""

    path: str
    help: str
    usage: str
    parameters: tuple[ParameterHelp, ...]
    examples: tuple[CommandExample, ...]
    commands: tuple[str, ...]
    documents: Annotated[tuple[str, ...], Described(text="the schemas of what it prints with --output json")]


def help_json(app: TyperGroup, program: str) -> str:
    """Return every command with its path, help, options, arguments and subcommands as JSON."""
    listed: list[Json] = [document_of(_command(*each)) for each in walk_commands(app, program)]
    return json_text({"schema": f"{SCHEMA_PREFIX}.help/1", "commands": listed})


def _command(command: TyperCommand | TyperGroup, context: Any) -> CommandHelp:
    path = str(context.command_path)
    children = sorted(command.commands) if isinstance(command, TyperGroup) else []
    return CommandHelp(
        path=path,
        help=_one_line(command.help),
        usage=" ".join(command.collect_usage_pieces(context)),
        parameters=tuple(
            _parameter(each, heading, context)
            for heading, parameters in parameter_sections(command.get_params(context)).items()
            for each in parameters
        ),
        examples=examples_of(path),
        commands=tuple(f"{path} {name}" for name in children),
        documents=tuple(documents_of_command(path.partition(" ")[2])),
    )


def _parameter(parameter: Parameter, heading: str, context: Any) -> ParameterHelp:
    if isinstance(parameter, TyperArgument):
        kind, names, value = "argument", [parameter.name or ""], argument_name(parameter)
    else:
        kind, names, value = "option", spellings(parameter), shown_value(parameter, context) or ""
    return ParameterHelp(
        heading=heading,
        kind=kind,
        names=tuple(names),
        value=value or None,
        required=bool(parameter.required),
        repeatable=bool(getattr(parameter, "multiple", False) or parameter.nargs == -1),
        default=_default(parameter.default),
        variable=parameter.envvar if isinstance(parameter.envvar, str) else None,
        help=_one_line(parameter.help),
    )


def _one_line(text: str | None) -> str:
    return " ".join((text or "").replace("\b", " ").split())


def _default(value: Any) -> Json:
    """Return the default as JSON, None where there is none, or where each run computes it."""
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, bool | int | float | str):
        return value
    return [_default(each) for each in value] if isinstance(value, Sequence) else None
