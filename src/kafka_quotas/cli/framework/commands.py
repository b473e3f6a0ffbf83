"""Commands and groups: made of functions, with help in our layout, and imported when they run.

A parameter takes time to make. `LazyGroup` has a table of names, modules and help lines, so that the top-level help
needs no command, and `alter` doesn't pay for what only `daemon` imports.

The long form of kafka-configs pairs the first --entity-type with the first of --entity-name and --entity-default, and
so on, but Typer hands over each option's values apart: `EntityCommand` keeps the order in the context's `meta` under
`ORDER`, and refuses what Typer would silently take. `PassThroughCommand` gets its arguments exactly as they were typed.

A service is a command that a unit file, a container or a pod starts: each of its options has a variable,
`KAFKA_QUOTAS_DAEMON_METRICS_PORT` for `--metrics-port` of `daemon run`. Options of help, of output and of stores have
none of a service; those of stores have one for all commands.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import import_module
from inspect import cleandoc, getdoc
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, TypeVar, get_args

from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from kafka_quotas.cli.framework.help_page import (
    GENERAL_HEADING,
    MOST_USED,
    STORE_HEADING,
    UNBROKEN,
    command_sections,
    example_lines,
    help_text,
    most_used,
    parameter_sections,
    shown_name,
    summary,
    unbroken,
    usage_name,
    variables_rule,
    without_variable,
)
from kafka_quotas.cli.framework.option_groups import group_of_function, option_info, parameter, use_plain_values
from kafka_quotas.cli.output.render import BOLD, coloured
from kafka_quotas.core.errors import KafkaQuotasError, UsageError

Command = TyperCommand | TyperGroup
_T = TypeVar("_T", bound=Callable[..., Any])
ORDER: Final = "kafka_quotas.option_order"
_DEFAULTS: Final = {
    "--user": "--user-default",
    "--client": "--client-default",
    "--ip": "--ip-default",
    "--topic": None,
    "--broker": "--broker-default",
}
PREFIX: Final = "KAFKA_QUOTAS_"
_AS_COMMAND: Final = "kafka_quotas_command"
_IS_SHORT: Final = "kafka_quotas.short_help"
_HELP_OF_HELP: Final = "Show this help and stop; -h shows examples and the most used options alone."
if TYPE_CHECKING:
    _Command = TyperCommand  # has the methods of groups that are called here
else:
    _Command = object
_WITHOUT: Final = frozenset({"--verbose", "--output", "--columns", "--limit", "--schema"})
"""Options of services that have no variable, among them those that are only asked in passing."""


class HelpPage(_Command):
    """The part of a command or group that writes its help, mixed in before Typer's class."""

    def __init__(self, *names: str, **attributes: Any) -> None:
        # Rich help costs more than the rest of the start, and reads [brackets] as markup.
        super().__init__(*names, **{"rich_markup_mode": None, **attributes})
        use_plain_values(self.params)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, note which help is meant if one is, and return the arguments left over."""
        ctx.meta[_IS_SHORT] = "-h" in args
        return super().parse_args(ctx, args)

    def get_help_option(self, ctx: Any) -> Any:
        """Return the option that shows the help."""
        option = super().get_help_option(ctx)
        if option is not None and option.rich_help_panel is None:
            option.help, option.rich_help_panel = _HELP_OF_HELP, GENERAL_HEADING
            use_plain_values([option])
        return option

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage line after the command's name."""
        arguments = [usage_name(each) for each in self.get_params(ctx) if isinstance(each, TyperArgument)]
        return ["[OPTIONS]", *arguments, *(["COMMAND", "[ARGS]..."] if isinstance(self, TyperGroup) else [])]

    def get_help(self, ctx: Any) -> str:
        """Return the help, in which no name is broken at a hyphen."""
        return str(super().get_help(ctx)).replace(UNBROKEN, "-")

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Write what the command does."""
        text = self.help
        self.help = unbroken(text or "")
        super().format_help_text(ctx, formatter)
        self.help = text

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the whole help, or for `-h` the purpose, examples and the most used options."""
        if not ctx.meta.get(_IS_SHORT):
            super().format_help(ctx, formatter)
            return
        self.format_usage(ctx, formatter)
        with formatter.indentation():
            formatter.write_paragraph()
            formatter.write_text(unbroken(summary(self)))
        self.format_epilog(ctx, formatter)
        self.format_options(ctx, formatter)
        formatter.write_paragraph()
        count = sum(isinstance(each, TyperOption) and not each.hidden for each in self.get_params(ctx))
        formatter.write(
            f"{ctx.command_path} --help shows everything{f', {count} options' if count > MOST_USED else ''}.\n"
        )

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments, options and commands, each under its heading."""
        parameters = self.get_params(ctx)
        if ctx.meta.get(_IS_SHORT):
            parameters = most_used(parameters, str(ctx.command_path))
        if isinstance(self, TyperGroup):
            for heading, rows in command_sections(self):
                with formatter.section(coloured(heading, BOLD, sys.stdout)):
                    formatter.write_dl([(name, unbroken(text)) for name, text in rows])
        for heading, listed in parameter_sections(parameters).items():
            with formatter.section(coloured(heading, BOLD, sys.stdout)):
                texts = [(shown_name(each, ctx), help_text(each, ctx)) for each in listed]
                formatter.write_dl([(name, unbroken(without_variable(text))) for name, text in texts])
        rule = variables_rule(parameters)
        if rule is not None and not ctx.meta.get(_IS_SHORT):
            with formatter.section(coloured("Environment variables", BOLD, sys.stdout)):
                formatter.write_text(unbroken(rule))

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples."""
        lines = example_lines(str(ctx.command_path))
        if lines:
            with formatter.section(coloured("Examples", BOLD, sys.stdout)):
                formatter.write("".join(f"  {line}\n" for line in lines))


class PagedCommand(HelpPage, TyperCommand):
    """A command with help in this layout."""

    def invoke(self, ctx: Any) -> Any:
        """Call the command's function, which may take the context as well."""
        return ctx.invoke(self.callback, {**ctx.params, "ctx": ctx})


class PagedGroup(HelpPage, TyperGroup):
    """A group with help in this layout, of the commands that functions are by their names."""

    headings: ClassVar[Mapping[str, Sequence[str]]] = {}
    """The names of commands by heading; all are below one where it is empty."""

    def __init__(self, about: str, functions: Mapping[str, Callable[..., Any]], **attributes: Any) -> None:
        commands = {name: command_of(function, name) for name, function in functions.items()}
        super().__init__(help=cleandoc(about), commands=commands, no_args_is_help=True, **attributes)

    def load(self, name: str) -> Any:
        """Return the command of a name."""
        return self.commands[name]

    # Typer keeps its context class in a private module, hence Any.
    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the name and the command that the arguments name, and the arguments after it."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command if name is None else self.load(name), rest


class LazyGroup(PagedGroup):
    """A group over a table of commands, which are imported when they are asked for.

    The table has the place of each command, as `module:attribute` below `kafka_quotas.cli`, and one line of help, by
    its name.
    """

    def __init__(self, about: str, table: Mapping[str, tuple[str, str]], **attributes: Any) -> None:
        super().__init__(about, {}, **attributes)
        self.table = table
        for name, (_, text) in table.items():  # what help, completion and "did you mean" look at
            self.commands[name] = TyperCommand(name, help=text)

    def load(self, name: str) -> Any:
        """Import the real command of a name in the table, and return it."""
        module_name, _, attribute = self.table[name][0].partition(":")
        target = getattr(import_module(f"kafka_quotas.cli.{module_name}"), attribute)
        return target if isinstance(target, TyperGroup) else command_of(target, name)


def as_command(cls: Any = PagedCommand, *, of_service: str | None = None, **settings: Any) -> Callable[[_T], _T]:
    """Return a decorator that gives a command's function the class of its command, and settings of that.

    `of_service` makes it a service with this name in its variables.
    """

    def mark(function: _T) -> _T:
        setattr(function, _AS_COMMAND, (cls, of_service, settings))
        return function

    return mark


def service(name: str) -> Callable[[_T], _T]:
    """Return a decorator that makes a command a service with this name in its variables."""
    return as_command(of_service=name)


def command_of(function: Callable[..., Any], name: str) -> Command:
    """Return the command that a function is."""
    cls, of_service, settings = getattr(function, _AS_COMMAND, (PagedCommand, None, {}))
    group = group_of_function(function)
    passes_through = issubclass(cls, PassThroughCommand)
    verbose = [] if passes_through else [parameter("verbose", bool, False, get_args(Verbose)[1])]
    params = [*group.parameters, *verbose]
    made: Command = cls(name, callback=group.value, params=params, help=getdoc(function), **settings)
    if not passes_through:
        _give_variables(made, of_service)
    return made


def walk_commands(command: Any, name: str, parent: Any = None) -> Iterator[tuple[Command, Any]]:
    """Yield a command and all below it with a context of each, the command itself first."""
    settings = command.context_settings if parent is None else {}
    context = command.context_class(command, info_name=name, parent=parent, **settings)
    yield command, context
    for child in getattr(command, "commands", ()):
        yield from walk_commands(command.load(child), child, context)


@dataclass(slots=True, kw_only=True)
class Invocation:
    """The state of one run of the command that the error boundary reads."""

    verbose: bool = False
    """Whether to show more: the evidence of every check, and the traceback of an error."""
    error_lines: Callable[[KafkaQuotasError], Sequence[str]] | None = None
    """Formats an error, for a command that imitates another program."""


RUNNING: ContextVar[Invocation] = ContextVar("running")


def _note_verbosity(value: bool) -> bool:
    session = RUNNING.get(None)
    if value and session is not None:
        session.verbose = True
    return value


def is_verbose() -> bool:
    """Return whether the running command was asked for more."""
    session = RUNNING.get(None)
    return session is not None and session.verbose


Verbose = Annotated[
    bool,
    option_info(
        "--verbose",
        rich_help_panel=GENERAL_HEADING,
        help="Show more: the evidence of every check of a load test, and the traceback of an error.",
        callback=_note_verbosity,
        expose_value=False,
    ),
]


def _give_variables(command: Any, name: str | None) -> None:
    """Give the options of a service their variables, where they have none of their own."""
    for each in command.params:
        needs_one = isinstance(each, TyperOption) and each.envvar is None and each.rich_help_panel != STORE_HEADING
        if name is not None and needs_one and not _WITHOUT.intersection(each.opts):
            each.envvar = variable(name, each.opts[0])


def variable(name: str, option: str) -> str:
    """Return the variable of an option: `--control` of `DAEMON` has `KAFKA_QUOTAS_DAEMON_CONTROL`."""
    return f"{PREFIX}{name}_{option.lstrip('-').replace('-', '_').upper()}"


class EntityCommand(PagedCommand):
    """A command with entity options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, note the order of the options, and return the arguments left over."""
        if ctx.resilient_parsing:  # a shell completes a line that isn't finished
            return super().parse_args(ctx, args)
        _refuse_missing_names(args)
        _, _, order = self.make_parser(ctx).parse_args(args=list(args))
        for option in set(order):
            once = isinstance(option, TyperOption) and not option.multiple and not option.is_flag
            if once and order.count(option) > 1:
                raise UsageError(f"{option.opts[0]} is given twice", hint="one command is about one entity")
        ctx.meta[ORDER] = tuple(option.name for option in order)
        return super().parse_args(ctx, args)


def _refuse_missing_names(args: list[str]) -> None:
    """Refuse `--user --add-config ...`, where the parser would take the option for the name."""
    for option, following in pairwise((*args, "--")):
        if option in _DEFAULTS and following.startswith("--"):
            default = _DEFAULTS[option]
            instead = f", or {default} for the default" if default else ""
            raise UsageError(
                f"{option} lacks a name", hint=f"{option} NAME{instead} (a name with -- in front: {option}=NAME)"
            )


class PassThroughCommand(PagedCommand):
    """A command that leaves all its arguments unparsed in the context's `args`."""

    def __init__(
        self,
        name: str,
        *,
        documented: Mapping[str, tuple[str | None, str]],
        exit_codes: Sequence[tuple[str, str]],
        **attributes: Any,
    ) -> None:
        """Take the name of each option's value (None without one) and its help, by the option's name."""
        self.exit_codes = exit_codes
        params = [
            parameter(
                name.replace("-", "_"),
                bool if value is None else str,
                False if value is None else None,
                option_info(f"--{name} {(value or '').upper()}", help=text),
            )
            for name, (value, text) in documented.items()
        ]
        super().__init__(name, **{**attributes, "params": params, "add_help_option": False})

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Return all arguments unparsed."""
        ctx.args = list(args)
        return list(args)
