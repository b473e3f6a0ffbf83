"""Commands and groups: help in our layout, imported when they run, with the options that many of them share.

Typer builds every parameter of every command when it starts. `LazyGroup` has a table of names, modules and help lines,
so that the top-level help needs no command, and `alter` doesn't pay for what only `daemon` imports.

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
from functools import cache
from importlib import import_module
from inspect import Parameter
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, TypeVar

import typer
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
from kafka_quotas.cli.framework.option_groups import expand_groups, option_info, typer_parameters, use_plain_values
from kafka_quotas.cli.output.render import BOLD, coloured
from kafka_quotas.core.errors import KafkaQuotasError, UsageError

Command = TyperCommand | TyperGroup
_Function = TypeVar("_Function", bound=Callable[..., Any])
ORDER: Final = "kafka_quotas.option_order"
_DEFAULTS: Final = {
    "--user": "--user-default",
    "--client": "--client-default",
    "--ip": "--ip-default",
    "--topic": None,
    "--broker": "--broker-default",
}
PREFIX: Final = "KAFKA_QUOTAS_"
_SERVICE: Final = "kafka_quotas_service"
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


class PagedGroup(HelpPage, TyperGroup):
    """A group with help in this layout."""

    headings: ClassVar[Mapping[str, Sequence[str]]] = {}
    """The names of commands by heading; all are below one where it is empty."""


class LazyGroup(PagedGroup):
    """A Typer group over a table of commands, which subclasses set."""

    table: ClassVar[Mapping[str, tuple[str, str]]] = {}
    """The place of each command, as `module:attribute` below `kafka_quotas.cli`, and one line of help, by its name."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        use_plain_values(self.params)
        for name, (_, text) in self.table.items():  # what help, completion and "did you mean" look at
            self.commands[name] = TyperCommand(name, help=text)

    def load(self, name: str) -> Command:
        """Import the real command of a name in the table at the first call, and return it."""
        return _real_command(name, self.table[name][0])

    # Typer keeps its context class in a private module, hence Any.
    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the name and the command that the arguments name, and the arguments after it."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command if name is None else self.load(name), rest


def lazy_app(about: str, table: Mapping[str, tuple[str, str]]) -> typer.Typer:
    """Return a group of the commands of a table."""
    app = typer.Typer(
        cls=type("LazyCommands", (LazyGroup,), {"table": table}), no_args_is_help=True, add_completion=False
    )

    @app.callback(help=about)
    def _group() -> None:
        """Run before the command, for the help alone."""

    return app


@cache
def _real_command(name: str, place: str) -> Command:
    module_name, _, attribute = place.partition(":")
    target = getattr(import_module(f"kafka_quotas.cli.{module_name}"), attribute)
    if not isinstance(target, typer.Typer):
        app = typer.Typer(add_completion=False)
        app.command()(target)
        target = app
    for registered in target.registered_commands:
        registered.callback = registered.callback and expand_groups(registered.callback)
        if registered.cls is TyperCommand:
            registered.cls = PagedCommand
    target._add_completion = False  # noqa: SLF001 - Typer offers it in its constructor only; the top level completes for all
    command = typer.main.get_command(target)
    assert isinstance(command, TyperCommand | TyperGroup)
    command.name = name
    for each in (command, *getattr(command, "commands", {}).values()):
        each.rich_markup_mode = None  # Rich help costs more than the rest of the start, and reads [brackets] as markup
        if not isinstance(each, PassThroughCommand):
            if not isinstance(each, TyperGroup):
                each.params.append(_verbose_option())
            give_variables(each)
        use_plain_values(each.params)
    return command


@cache
def _verbose_option() -> Any:
    (made,) = typer_parameters([Parameter("verbose", Parameter.KEYWORD_ONLY, default=False, annotation=Verbose)])
    return made


def walk_commands(app: typer.Typer, program: str) -> Iterator[tuple[Command, Any]]:
    """Yield every command and group below a Typer app with a context of it, the program itself first."""
    yield from _below(typer.main.get_command(app), program, None)


def _below(command: Any, name: str, parent: Any) -> Iterator[tuple[Command, Any]]:
    settings = command.context_settings if parent is None else {}
    context = command.context_class(command, info_name=name, parent=parent, **settings)
    yield command, context
    for child, listed in getattr(command, "commands", {}).items():
        yield from _below(command.load(child) if isinstance(command, LazyGroup) else listed, child, context)


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


def service(name: str) -> Callable[[_Function], _Function]:
    """Return a decorator that makes a command a service with this name in its variables."""

    def mark(command: _Function) -> _Function:
        setattr(command, _SERVICE, name)
        return command

    return mark


def give_variables(command: Any) -> None:
    """Give the options of a service their variables, where they have none of their own."""
    name = getattr(command.callback, _SERVICE, None)
    if name is None:
        return
    for each in command.params:
        needs_one = isinstance(each, TyperOption) and each.envvar is None and each.rich_help_panel != STORE_HEADING
        if needs_one and not _WITHOUT.intersection(each.opts):
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

    documented: ClassVar[Mapping[str, tuple[str | None, str]]] = MappingProxyType({})
    """The name of each option's value, None for an option without one, and its help, by the option's name."""
    exit_codes: Sequence[tuple[str, str]] = ()

    def __init__(self, **attributes: Any) -> None:
        params = typer_parameters(map(_parameter, self.documented, self.documented.values()))
        super().__init__(**{**attributes, "params": params, "add_help_option": False})

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Return all arguments unparsed."""
        ctx.args = list(args)
        return list(args)


def _parameter(name: str, about: tuple[str | None, str]) -> Parameter:
    value, text = about
    declared = option_info(f"--{name} {(value or '').upper()}", help=text)
    annotation: Any = Annotated[bool, declared] if value is None else Annotated[str | None, declared]
    default = False if value is None else None
    return Parameter(name.replace("-", "_"), Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
