"""`--columns` and `--limit`, which every command has whose `--output` makes a `View`: the three make one value."""

from dataclasses import replace
from typing import Any

import typer
from typer.core import TyperOption

from kafka_quotas.cli.framework.help_page import OUTPUT_HEADING
from kafka_quotas.cli.output.view import Output, View
from kafka_quotas.core.errors import UsageError

_COLUMNS_META = "kafka_quotas.columns"
_LIMIT_META = "kafka_quotas.limit"


def parse_view(text: "str | View") -> View:
    """Return the view in a form by its name.

    Raises:
        ValueError: There is no such form.
    """
    if isinstance(text, View):
        return text
    if text.lower() not in tuple(Output):
        raise ValueError(f"{text!r} is not one of {', '.join(Output)}")
    return View(form=Output(text.lower()))


def with_selection(ctx: typer.Context, value: View) -> View:
    """Return the view with the columns and the limit of the same command line.

    Typer reads these two options before the view.
    """
    return replace(value, columns=ctx.meta.get(_COLUMNS_META, ()), limit=ctx.meta.get(_LIMIT_META))


def takes_selection(parameters: list[Any]) -> bool:
    """Return whether a command with these parameters prints a listing."""
    return any(isinstance(each, TyperOption) and each.type_descriptor.annotation is View for each in parameters)


def _keep_columns(ctx: typer.Context, value: str | None) -> str | None:
    if value is not None and not ctx.resilient_parsing:
        names = tuple(name.strip() for name in value.split(","))
        if not all(names):
            raise UsageError("--columns has an empty name", hint="is the shell variable behind it set?")
        ctx.meta[_COLUMNS_META] = names
    return value


def _keep_limit(ctx: typer.Context, value: int | None) -> int | None:
    ctx.meta[_LIMIT_META] = value
    return value


def selection_options(names: set[str]) -> list[TyperOption]:
    """Return the two options except those whose `names` the command uses already."""
    from kafka_quotas.cli.framework.option_groups import (  # noqa: PLC0415 - the top-level help lists no options
        option,
        option_group,
        typer_options,
    )

    @option_group(OUTPUT_HEADING)
    class SelectionOptions:
        """The options that choose a part of a listing."""

        columns: str | None = option(
            "--columns NAME,...",
            help="Only these columns, in this order; an unknown name lists the valid ones.",
            callback=_keep_columns,
            is_eager=True,
            expose_value=False,
        )
        limit: int | None = option(
            "--limit ROWS",
            min=0,
            help="Show at most N rows; 0 for all.",
            callback=_keep_limit,
            is_eager=True,
            expose_value=False,
        )

    return [each for each in typer_options(SelectionOptions) if not names & set(each.opts)]
