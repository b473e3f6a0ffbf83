"""How long a change is to last."""

from typing import Annotated

import typer

from kafka_quotas.core.duration import parse_duration_ms
from kafka_quotas.core.errors import UsageError

_LONGEST_MS = 366 * 24 * 3_600_000

For = Annotated[
    str | None,
    typer.Option(
        "--for",
        metavar="DURATION",
        help="Note in the journal that this is to be undone after, for example, 30min or 2h. 'revert --due' undoes it.",
    ),
]


def parse_for_ms(text: str | None) -> int | None:
    """The milliseconds that `--for` asks for, None without it.

    Raises `UsageError` where it is no length of time, shorter than a second or longer than a year.
    """
    if text is None:
        return None
    length_ms = int(parse_duration_ms(text))
    if not 1000 <= length_ms <= _LONGEST_MS:
        raise UsageError(f"--for {text} can't be meant", hint="between 1s and 8784h, for example 30min or 2h")
    return length_ms
