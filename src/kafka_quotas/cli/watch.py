"""`kafka-quotas watch`: changes of a store as they happen."""

import sys
import time
from contextlib import closing
from enum import StrEnum
from typing import Annotated

import typer

from kafka_quotas.cli.change_values import change_document, told_value
from kafka_quotas.cli.journal_options import warn
from kafka_quotas.cli.json_text import json_line
from kafka_quotas.cli.options import BootstrapServer, CommandConfig, ContextName, StoreUrl, Zookeeper
from kafka_quotas.cli.render import SCHEMA_PREFIX, takes_every_letter, write
from kafka_quotas.cli.store_choice import choose_store
from kafka_quotas.commands.watch import RETRY_S, SeenChange, WatchBounds
from kafka_quotas.commands.watch import watch as run_watch
from kafka_quotas.core.duration import parse_duration_ms
from kafka_quotas.core.errors import StoreUnreachableError, UsageError
from kafka_quotas.core.instant import format_instant
from kafka_quotas.system_clock import SystemClock

app = typer.Typer(add_completion=False)


class LineForm(StrEnum):
    """What `--output` takes where lines come one by one."""

    TEXT = "text"
    JSON = "json"


Count = Annotated[int | None, typer.Option("--count", metavar="COUNT", min=1, help="Stop after so many changes.")]
Duration = Annotated[
    str | None, typer.Option("--duration", metavar="DURATION", help="Stop after, for example, 90s or 2h.")
]
LineOutput = Annotated[
    LineForm, typer.Option("--output", "-o", metavar="FORM", help="text, or json: one JSON document per line.")
]


@app.command()
def watch(
    *,
    count: Count = None,
    duration: Duration = None,
    store: StoreUrl = None,
    context: ContextName = None,
    bootstrap_server: BootstrapServer = None,
    zookeeper: Zookeeper = None,
    command_config: CommandConfig = None,
    output: LineOutput = LineForm.TEXT,
) -> None:
    """Print changes of a store as they happen: whose quota, which one, old and new value.

    Stores don't keep who made a change; what this tool changed is in its journal (revert --list). A Kafka store is
    looked at every half second, so that changes in quick succession are seen as one.
    """
    bounds = WatchBounds(count=count, duration_s=_seconds(duration))
    choice = choose_store(
        store=store,
        bootstrap_server=bootstrap_server,
        zookeeper=zookeeper,
        command_config=command_config,
        context=context,
    )
    with closing(choice.open()) as opened:
        url = opened.url

        def began(entities: int) -> None:
            write(f"note: watching {url}, which has quotas of {entities} entities", sys.stderr)
            sys.stderr.flush()

        seen = run_watch(
            opened,
            bounds=bounds,
            clock=SystemClock(),
            monotonic_s=time.monotonic,
            pause=time.sleep,
            began=began,
            lost=_tell_lost,
        )
        for each in seen:
            write(_json(each, url) if output is LineForm.JSON else _text(each), sys.stdout)
            sys.stdout.flush()  # whoever reads a pipe wants it now


def _seconds(duration: str | None) -> float | None:
    if duration is None:
        return None
    length_ms = parse_duration_ms(duration)
    if length_ms <= 0:
        raise UsageError(f"--duration {duration} is no time at all", hint="for example 90s or 2h")
    return float(length_ms / 1000)


def _tell_lost(error: StoreUnreachableError) -> None:
    warn(f"the store is lost, and asked again every {RETRY_S:g} s: {error.message}")


def _text(seen: SeenChange) -> str:
    change = seen.change
    old, new = told_value(change.key, change.old), told_value(change.key, change.new)
    return f"{format_instant(seen.time_ms)}  {change.entity}  {change.key}  {old} -> {new}"


def _json(seen: SeenChange, store_url: str) -> str:
    document = {
        "schema": f"{SCHEMA_PREFIX}.change/1",
        "time": format_instant(seen.time_ms),
        "store": store_url,
        **change_document(seen.change),
    }
    return json_line(document, ascii_only=not takes_every_letter(sys.stdout))
