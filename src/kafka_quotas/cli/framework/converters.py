"""Conversion of option texts to plain values without pydantic.

Typer 0.29 builds a pydantic validator for every option of the command that runs, which takes longer than all the rest
of an `alter`. Texts, numbers, choices and paths need none: their options get a converter from here. Whatever
else an option takes stays with Typer.
"""

from collections.abc import Callable, Iterable
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin

import typer
from typer.core import TyperArgument, TyperOption

from kafka_quotas.cli.framework.listing_options import parse_view
from kafka_quotas.cli.output.view import View

_Convert = Callable[[Any], Any]


def use_plain_values(parameters: Iterable[Any]) -> None:
    """Replace Typer's converters of plain values by converters without pydantic."""
    for parameter in parameters:
        if not isinstance(parameter, TyperArgument | TyperOption):
            continue
        convert = _converter(parameter)
        if convert is not None:
            parameter._runtime_param = PlainValue(convert)  # type: ignore[assignment] # noqa: SLF001 - see the module


class PlainValue:
    """Stands in for Typer's converter of one parameter."""

    __slots__ = ("_convert",)

    def __init__(self, convert: _Convert) -> None:
        self._convert = convert

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Convert the value or values of a parameter.

        Returns:
            None, or an empty tuple for a parameter with several values, where it was not given.

        Raises:
            typer.BadParameter: A text can't be converted.
        """
        several = param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        try:
            return [self._convert(each) for each in value] if several else self._convert(value)
        except ValueError as error:
            raise typer.BadParameter(str(error), ctx=ctx, param=param) from None


def _converter(parameter: TyperArgument | TyperOption) -> _Convert | None:
    """Return the converter of a parameter's type, None where it needs Typer's own."""
    annotation: Any = parameter.type_descriptor.annotation
    info = parameter.type_descriptor.parameter_info
    if get_origin(annotation) is list:
        (annotation,) = get_args(annotation)
    if annotation is View:
        return parse_view
    if not isinstance(annotation, type) or info.parser is not None or info.clamp:
        return None
    if annotation is Path:
        checked = info.exists or info.writable or info.resolve_path or info.allow_dash or info.path_type
        return None if checked or not info.file_okay or not info.dir_okay else Path
    if issubclass(annotation, Enum):
        return lambda value: _choice(annotation, value)
    if annotation in (int, float):
        return lambda value: _number(annotation, value, info.min, info.max)
    return _flag if annotation is bool else str if annotation is str else None


def _choice(choices: type[Enum], value: Any) -> Enum:
    if isinstance(value, choices):
        return value
    for choice in choices:
        if choice.value.lower() == str(value).lower():  # JSON is json to a person
            return choice
    raise ValueError(f"{value!r} is not one of {', '.join(str(choice.value) for choice in choices)}")


def _number(kind: type[int] | type[float], value: Any, least: float | None, most: float | None) -> float:
    try:
        number = kind(value)
    except ValueError:
        raise ValueError(f"{value!r} is not a {'whole ' if kind is int else ''}number") from None
    if (least is not None and not number >= least) or (most is not None and not number <= most):
        limits = [f"at least {least}"] * (least is not None) + [f"at most {most}"] * (most is not None)
        raise ValueError(f"{value} is out of range: it must be {' and '.join(limits)}")
    return number


def _flag(value: Any) -> bool:
    """Convert a flag, which may be a text from an environment variable."""
    if isinstance(value, bool):
        return value
    known = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    if str(value).lower() not in known:
        raise ValueError(f"{value!r} is neither true nor false")
    return known[str(value).lower()]
