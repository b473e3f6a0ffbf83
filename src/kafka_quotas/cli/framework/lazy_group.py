"""A group of commands that imports a command's module only when that command runs.

Typer builds every parameter of every command when it starts. With one table of names, modules and help lines the
top-level help needs none of them, and `alter` doesn't pay for what only `daemon` imports.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from kafka_quotas.cli.framework.commands import PassThroughCommand
from kafka_quotas.cli.framework.converters import use_plain_values
from kafka_quotas.cli.framework.help_page import (
    GENERAL_HEADING,
    PagedCommand,
    PagedGroup,
    show_short_help,
)
from kafka_quotas.cli.framework.listing_options import selection_options, takes_selection
from kafka_quotas.cli.framework.service_variables import give_variables
from kafka_quotas.core.errors import KafkaQuotasError

Command = TyperCommand | TyperGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class LazyCommand:
    """One row of a table of commands."""

    name: str
    target: str
    """`module:attribute` of a `typer.Typer` or of a plain command function."""
    help: str


def lazy_commands(package: str, rows: Mapping[str, tuple[str, str]]) -> tuple[LazyCommand, ...]:
    """Return a table of commands from rows of a name, a target below the package, and one line of help."""
    return tuple(
        LazyCommand(name=name, target=f"{package}.{target}", help=text) for name, (target, text) in rows.items()
    )


class LazyGroup(PagedGroup):
    """A Typer group over a table of `LazyCommand`.

    Subclasses set the table.
    """

    table: Sequence[LazyCommand] = ()

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self._loaded: dict[str, Command] = {}
        for row in self.table:  # what help, completion and "did you mean" look at
            self.commands[row.name] = TyperCommand(row.name, help=row.help)

    def load(self, name: str) -> Command:
        """Import the real command of a name in the table at the first call, and return it."""
        if name not in self._loaded:
            row = next(row for row in self.table if row.name == name)
            self._loaded[name] = _real_command(row)
        return self._loaded[name]

    # Typer keeps its context class in a private module, hence Any.
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the group's own options and return the arguments left over."""
        use_plain_values(self.get_params(ctx))
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the name and the command that the arguments name, and the arguments after it."""
        name, command, rest = super().resolve_command(ctx, args)
        if name is None:
            return name, command, rest
        loaded = self.load(name)
        for each in _walk(loaded):
            use_plain_values(each.get_params(ctx))
        return name, loaded, rest


def _real_command(row: LazyCommand) -> Command:
    from kafka_quotas.cli.framework.option_groups import expand_groups  # noqa: PLC0415 - the top-level help needs none

    module_name, _, attribute = row.target.partition(":")
    target = getattr(import_module(module_name), attribute)
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
    command.name = row.name
    for each in _walk(command):
        each.rich_markup_mode = None  # Rich help costs more than the rest of the start, and reads [brackets] as markup
        if isinstance(each, PagedGroup):
            each.params.extend(general_options()[:1])
        elif not isinstance(each, PassThroughCommand):
            if takes_selection(each.params):
                each.params.extend(selection_options({name for known in each.params for name in known.opts}))
            each.params.extend(general_options())
            give_variables(each)
    return command


def _walk(command: Any) -> Iterator[Command]:
    yield command
    if isinstance(command, TyperGroup):
        for child in command.commands.values():
            yield from _walk(child)


def walk_commands(app: typer.Typer, program: str) -> Iterator[tuple[Command, Any]]:
    """Yield every command and group below a Typer app with a context of it, the program itself first."""
    root = typer.main.get_command(app)
    assert isinstance(root, LazyGroup)
    context = root.context_class(root, info_name=program, **root.context_settings)
    yield root, context
    for name in root.commands:
        yield from _below(root.load(name), name, context)


def _below(command: Command, name: str, parent: Any) -> Iterator[tuple[Command, Any]]:
    context = command.context_class(command, info_name=name, parent=parent)
    yield command, context
    if isinstance(command, TyperGroup):
        for child_name, listed in command.commands.items():
            child = command.load(child_name) if isinstance(command, LazyGroup) else listed
            assert isinstance(child, TyperCommand | TyperGroup)
            yield from _below(child, child_name, context)


@dataclass(slots=True, kw_only=True)
class Invocation:
    """The state of one run of the command that the error boundary reads."""

    verbose: bool = False
    """Whether to show more: the evidence of every check, and the traceback of an error."""
    error_lines: Callable[[KafkaQuotasError], Sequence[str]] | None = None
    """Formats an error, for a command that imitates another program."""


RUNNING: ContextVar[Invocation] = ContextVar("running")
"""The run of the command that this is part of."""

VERBOSE_HELP = "Show more: the evidence of every check of a load test, and the traceback of an error."


def note_verbosity(ctx: typer.Context, value: bool) -> bool:
    """Note that more is wanted, as the callback of `--verbose`, and return its value."""
    session = ctx.find_object(Invocation)
    if value and session is not None:
        session.verbose = True
    return value


def is_verbose() -> bool:
    """Return whether the running command was asked for more."""
    session = RUNNING.get(None)
    return session is not None and session.verbose


def general_options() -> list[TyperOption]:
    """Return the options that every command takes, the one of groups first."""
    from kafka_quotas.cli.framework.option_groups import option, option_group, typer_options  # noqa: PLC0415 - as above

    @option_group(GENERAL_HEADING)
    class General:
        """How much to show."""

        short_help: bool = option(
            "-h",
            default=False,
            help="Show examples and the most used options, and stop.",
            callback=show_short_help,
            expose_value=False,
            is_eager=True,
        )
        verbose: bool = option(
            "--verbose",
            default=False,
            help=VERBOSE_HELP,
            callback=note_verbosity,
            expose_value=False,
        )

    return typer_options(General)
