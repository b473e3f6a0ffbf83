"""A Typer command that gets its arguments exactly as they were typed, for a program with a grammar of its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from inspect import Parameter, Signature
from typing import Annotated, Any

import typer
from typer.core import TyperCommand


@dataclass(frozen=True, slots=True, kw_only=True)
class PassThroughOption:
    """An option as the manual page and the completion show it."""

    name: str
    value: str | None
    """The name of its value, None for an option without a value."""
    help: str


class PassThroughCommand(TyperCommand):
    """A command that leaves all its arguments unparsed in the context's `args`.

    Subclasses set what the manual page documents.
    """

    documented: Sequence[PassThroughOption] = ()
    exit_codes: Sequence[tuple[str, str]] = ()

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**{**attributes, "params": _parameters(self.documented), "add_help_option": False})

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Return all arguments unparsed."""
        ctx.args = list(args)
        return list(args)


def _parameters(options: Sequence[PassThroughOption]) -> list[Any]:

    def carrier(**_: Any) -> None:
        """Carry the options in a signature that Typer reads."""

    parameters = [_parameter(option) for option in options]
    carrier.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    carrier.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    app = typer.Typer(add_completion=False)
    app.command(add_help_option=False)(carrier)
    return list(typer.main.get_command(app).params)


def _parameter(option: PassThroughOption) -> Parameter:
    declared = typer.Option(f"--{option.name}", help=option.help, metavar=option.value and option.value.upper())
    annotation: Any = Annotated[bool, declared] if option.value is None else Annotated[str | None, declared]
    default = False if option.value is None else None
    return Parameter(option.name.replace("-", "_"), Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
