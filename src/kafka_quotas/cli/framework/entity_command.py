"""A Typer command that knows in which order its options came, and refuses what Typer would silently take.

The long form of kafka-configs pairs the first --entity-type with the first of --entity-name and --entity-default, and
so on; Typer hands over each option's values apart. The order is in the context's `meta` under `ORDER`.
"""

from itertools import pairwise
from typing import Any

from typer.core import TyperCommand, TyperOption

from kafka_quotas.core.errors import UsageError

ORDER = "kafka_quotas.option_order"
_DEFAULTS = {
    "--user": "--user-default",
    "--client": "--client-default",
    "--ip": "--ip-default",
    "--topic": None,
    "--broker": "--broker-default",
}


class EntityCommand(TyperCommand):
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
