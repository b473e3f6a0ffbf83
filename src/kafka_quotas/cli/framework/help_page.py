"""The layout of help: usage, text, and parameters under the headings of their option groups.

`--help`, the manual pages and `--help-json` show the same sections, `-h` the examples and the options of `most_used`. A
heading travels in Typer's own field for it, `rich_help_panel`; Rich itself stays out, because it costs more than the
rest of a start.
"""

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, Final

from typer.core import TyperArgument, TyperGroup, TyperOption

from kafka_quotas.core.described import Sentences
from kafka_quotas.core.errors import CLOSED_PIPE, INTERRUPTED

ARGUMENTS_HEADING = "Arguments"
OPTIONS_HEADING = "Options"
STORE_HEADING = "Where quotas live (see kafka-quotas help stores)"
OUTPUT_HEADING = "Output"
GENERAL_HEADING = "General options"
COMMANDS_HEADING = "Commands"
MOST_USED = 10
_USED_EVERYWHERE = ("--store", "--bootstrap-server", "--context", "--output", "--dry-run", "--yes")
"""Options that people use whether or not an example of the command shows them, the most used first."""
_SHARED_VARIABLES = ("--store", "--context", "--command-config")
"""Options of stores, whose variables hold for all commands."""
UNBROKEN = "\u2011"
"""Stands for a hyphen while lines are folded, so that a name can be copied and searched."""
DIFFERENT: Final = "3"
"""The exit code of a difference, of commands with --exit-code."""
DONE_MEANING: Final = ("0", "Done; finding nothing is no failure.")
INTERRUPTED_MEANING: Final = (str(INTERRUPTED), "Interrupted.")
CLOSED_PIPE_MEANING: Final = (str(CLOSED_PIPE), "The reader of the output ended first, as head does.")
EXIT_CODES: Final = (
    DONE_MEANING,
    ("1", "Something failed, could not be reached, or did not hold."),
    ("2", "Wrong usage; nothing was done."),
    (DIFFERENT, "Something differs, where --exit-code asks for that."),
    INTERRUPTED_MEANING,
    CLOSED_PIPE_MEANING,
)
"""The exit codes of all commands but kafka-configs, which has those of Kafka's program."""
_EXAMPLES: Final = Path(__file__).with_name("command_examples.sh")
"""The examples of all commands, which is read only if examples are shown."""
_REMOVED: Final = _EXAMPLES.with_name("removed.toml")
"""Commands and options that were removed, each with what to use instead."""
_LAST = (STORE_HEADING, OUTPUT_HEADING, GENERAL_HEADING)
"""What many commands share comes after what is a command's own."""

Parameter = TyperArgument | TyperOption


def parameter_sections(parameters: Iterable[Any]) -> dict[str, list[Parameter]]:
    """Return the visible parameters by heading: a command's own before those that many share."""
    found: dict[str, list[Parameter]] = {ARGUMENTS_HEADING: [], OPTIONS_HEADING: []}
    for each in parameters:
        if isinstance(each, TyperArgument | TyperOption) and not each.hidden:
            heading = ARGUMENTS_HEADING if isinstance(each, TyperArgument) else each.rich_help_panel or OPTIONS_HEADING
            found.setdefault(heading, []).append(each)
    order = sorted(found, key=lambda heading: _LAST.index(heading) if heading in _LAST else -1)  # stable
    return {name: found[name] for name in order if found[name]}


def most_used(parameters: Sequence[Any], path: str) -> list[Any]:
    """Return the arguments, and the options that are required, in the examples or used everywhere.

    All are returned if there are no more than ten options.
    """
    options = [each for each in parameters if isinstance(each, TyperOption) and not each.hidden]
    if len(options) <= MOST_USED:
        return list(parameters)
    words = set(re.split(r"[\s=]", "\n".join(example_lines(path))))
    ranks: dict[int, int] = {}
    for option in options:
        common = [2 + at for at, name in enumerate(_USED_EVERYWHERE) if name in option.opts]
        found = [0] * bool(option.required) or [1] * bool(words.intersection(option.opts)) or common
        if found:
            ranks[id(option)] = min(found)
    kept = sorted(ranks, key=lambda each: ranks[each])[:MOST_USED]  # stable
    return [each for each in parameters if isinstance(each, TyperArgument) or id(each) in kept]


def variables_rule(parameters: Iterable[Any]) -> str | None:
    """Return how the environment variables of options are named, None if no option has one."""
    options = [each for each in parameters if isinstance(each, TyperOption)]
    own = next((each for each in options if isinstance(each.envvar, str)), None)
    shared = ", ".join(name for each in options if _shared_variable(each) for name in each.opts)
    rules = [f"KAFKA_QUOTAS_<OPTION> for {shared}"] if shared else []
    if own is not None:
        prefix = str(own.envvar).removesuffix(_in_capitals(own.opts[0]))
        rules.append(f"{prefix}<OPTION> for each{' other' * bool(shared)} option, as in {own.envvar} for {own.opts[0]}")
    return f"{'; '.join(rules)} (see kafka-quotas help environment)." if rules else None


def _in_capitals(option: str) -> str:
    return option.lstrip("-").replace("-", "_").upper()


def _shared_variable(parameter: Any) -> str | None:
    """Return the variable that an option of stores has for all commands, None for any other parameter."""
    if not isinstance(parameter, TyperOption) or parameter.rich_help_panel != STORE_HEADING:
        return None
    return next((f"KAFKA_QUOTAS_{_in_capitals(each)}" for each in parameter.opts if each in _SHARED_VARIABLES), None)


def example_lines(path: str) -> list[str]:
    """Return the examples of a command as lines of a shell script."""
    return [line for each in examples_of(path) for line in (f"# {each.purpose}", *each.lines)]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandExample:
    """Command lines that do one thing."""

    DOCUMENT: ClassVar = "purpose commands"
    purpose: str
    lines: tuple[str, ...]
    """Their lines; a backslash at the end joins a line to the next."""

    @property
    def commands(self) -> Sentences:
        """The command lines, each whole."""
        return tuple(" ".join(line.split()) for line in "\n".join(self.lines).replace("\\\n", " ").splitlines())


def examples_of(path: str) -> tuple[CommandExample, ...]:
    """Return the examples of a command by its path: `kafka-quotas alter`."""
    return all_examples().get(path, ())


@cache
def all_examples() -> dict[str, tuple[CommandExample, ...]]:
    """Return the examples of all commands by path, in the order of the script."""
    found: dict[str, list[CommandExample]] = {}
    for section in _EXAMPLES.read_text(encoding="utf-8").split("\n## ")[1:]:
        path, *blocks = section.split("\n# ")
        for block in blocks:
            purpose, *lines = block.strip().splitlines()
            found.setdefault(path.strip(), []).append(CommandExample(purpose=purpose, lines=tuple(lines)))
    return {path: tuple(each) for path, each in found.items()}


@cache
def removed() -> dict[str, str]:
    """Return the hints of what was removed, by option, by command with option, or by command.

    In the file a word `a|b` stands for each of these words.
    """
    import tomllib  # noqa: PLC0415 - only wrong usage pays for it

    table = tomllib.loads(_REMOVED.read_text(encoding="utf-8"))
    return {
        " ".join(words): hint
        for line, hint in table.items()
        for words in product(*(word.split("|") for word in line.split()))
    }


def hint_for_removed(error: Any, command_path: str) -> str | None:
    """Return the hint for a removed option or command that an error of Typer names, None for others."""
    option = getattr(error, "option_name", None)
    if option is not None:
        return removed().get(f"{command_path} {option}") or removed().get(option)
    command = re.match(r"No such command '([^']+)'", error.message)
    return removed().get(f"{command_path} {command[1]}") if command else None


def command_sections(group: TyperGroup) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield the headings of a group's commands with their names and summaries."""
    listed = {name: summary(each) for name, each in group.commands.items() if not each.hidden}
    headings: Mapping[str, Sequence[str]] = getattr(group, "headings", {})
    for heading, names in headings.items():
        yield heading, [(name, listed.pop(name)) for name in names]
    if listed:
        yield COMMANDS_HEADING, list(listed.items())


def summary(command: Any) -> str:
    """Return the first paragraph of a command's help as one line."""
    return " ".join(inspect.cleandoc(command.help or "").split("\n\n")[0].split())


def usage_name(argument: TyperArgument) -> str:
    """Return an argument as a usage line shows it: `NAME`, `[NAME]`, `FILE...` or `[FILE]...`."""
    name = argument_name(argument)
    repeated = "..." if argument.nargs == -1 else ""
    return f"{name}{repeated}" if argument.required else f"[{name}]{repeated}"


def argument_name(argument: TyperArgument) -> str:
    """Return the bare name of an argument's value in capitals: `FILE`."""
    return argument.metavar or argument.name.upper()


def shown_value(option: TyperOption, context: Any) -> str | None:
    """Return how help names an option's value: `FILE`, or its choices.

    Returns:
        None for an option without a value.
    """
    if option.is_flag or option.count:
        return None
    return option.metavar or option.display_type(context).strip("<>")


def spellings(option: TyperOption) -> list[str]:
    """Return an option's spellings, short ones first."""
    return sorted((*option.opts, *option.secondary_opts), key=len)  # Typer keeps those of --help in a set


def shown_name(parameter: Parameter, context: Any) -> str:
    """Return a parameter's spellings and value, as the first column of help."""
    if isinstance(parameter, TyperArgument):
        return usage_name(parameter)
    value = shown_value(parameter, context)
    return ", ".join(spellings(parameter)) + (f" {value}" if value else "")


def help_text(parameter: Parameter, context: Any) -> str:
    """Return what a parameter is for, with its variable, default and range."""
    _, text = parameter.get_help_record(context) or ("", "")
    shared = _shared_variable(parameter)
    return " ".join(text.split()).replace("[env var: ", "[env: ") + (f" [env: {shared}]" if shared else "")


def unbroken(text: str) -> str:
    """Return a text whose names are not broken at a hyphen."""
    return text.replace("-", UNBROKEN)


def without_variable(text: str) -> str:
    """Return the help of an option without its variable."""
    return re.sub(r" ?\[env: \w+(?:; (?=[^\]])|\])", lambda found: " [" if found[0].endswith("; ") else "", text)
