"""Typer commands that read their arguments in a way of their own.

The long form of kafka-configs pairs the first --entity-type with the first of --entity-name and --entity-default, and
so on, but Typer hands over each option's values apart: `EntityCommand` keeps the order in the context's `meta` under
`ORDER`, and refuses what Typer would silently take. `PassThroughCommand` gets its arguments exactly as they were typed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from inspect import Parameter, Signature
from itertools import pairwise
from typing import Annotated, Any

import typer
from typer.core import TyperOption

from kafka_quotas.cli.framework.help_page import PagedCommand
from kafka_quotas.core.errors import UsageError

ORDER = "kafka_quotas.option_order"
_DEFAULTS = {
    "--user": "--user-default",
    "--client": "--client-default",
    "--ip": "--ip-default",
    "--topic": None,
    "--broker": "--broker-default",
}


class EntityCommand(PagedCommand):
    """A command with entity options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, note the order of the options, and return the arguments left over.

        Raises:
            UsageError: An entity option has no name, or an option with a single value is given twice.
        """
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PassThroughOption:
    """An option as the manual page and the completion show it."""

    name: str
    value: str | None
    """The name of its value, None for an option without a value."""
    help: str


class PassThroughCommand(PagedCommand):
    """A command that leaves all its arguments unparsed in the context's `args`.

    Subclasses set what the manual page documents.
    """

    documented: Sequence[PassThroughOption] = ()
    exit_codes: Sequence[tuple[str, str]] = ()

    def __init__(self, **attributes: Any) -> None:
        params = typer_parameters(map(_parameter, self.documented))
        super().__init__(**{**attributes, "params": params, "add_help_option": False})

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Return all arguments unparsed."""
        ctx.args = list(args)
        return list(args)


def typer_parameters(parameters: Iterable[Parameter]) -> list[Any]:
    """Return the parameters of a command as Typer builds them."""

    def carrier(**_: Any) -> None:
        """Carry the options in a signature that Typer reads."""

    signature = Signature(list(parameters))
    carrier.__signature__ = signature  # type: ignore[attr-defined]
    carrier.__annotations__ = {name: each.annotation for name, each in signature.parameters.items()}
    app = typer.Typer(add_completion=False)
    app.command(add_help_option=False)(carrier)
    return list(typer.main.get_command(app).params)


def _parameter(option: PassThroughOption) -> Parameter:
    declared = typer.Option(f"--{option.name}", help=option.help, metavar=option.value and option.value.upper())
    annotation: Any = Annotated[bool, declared] if option.value is None else Annotated[str | None, declared]
    default = False if option.value is None else None
    return Parameter(option.name.replace("-", "_"), Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
