"""`kafka-quotas pipeline stream`: live usage and throttle state from a topic or a folder of events."""

import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kafka_quotas.cli.framework.commands import service
from kafka_quotas.cli.framework.help_page import OUTPUT_HEADING
from kafka_quotas.cli.framework.option_groups import Without, flag, option, option_group
from kafka_quotas.cli.options.stores import StoreOrContext
from kafka_quotas.cli.options.windows import ClientWindow
from kafka_quotas.cli.output.listing import Table
from kafka_quotas.cli.output.render import print_table, write
from kafka_quotas.cli.pipeline.options import EngineOptions, proposal_of_file, proposal_of_store
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.formats.documents import read_properties
from kafka_quotas.core.model.value_format import format_count, parse_duration_ms
from kafka_quotas.pipeline.buckets.proposal import Proposal
from kafka_quotas.pipeline.engine.job import LIBRARIES, require_libraries
from kafka_quotas.pipeline.stream.source import SCHEME, TopicSource, parse_source, parse_topic

if TYPE_CHECKING:
    import pyarrow as pa

    from kafka_quotas.pipeline.stream.batch import Batch

CONSOLE = "-"
_CHECKPOINT = "_checkpoint"

SourceText = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="kafka://HOST:PORT/TOPIC, a folder to which the daemon adds .jsonl files, or one that ingest writes.",
    ),
]


@option_group("Stream")
class StreamTargetOptions:
    """The options about where a stream goes, and the quotas that it is held against."""

    out: str = option(
        "--out TARGET",
        rich_help_panel=OUTPUT_HEADING,
        default=CONSOLE,
        help="A Delta table (path or URL), kafka://HOST:PORT/TOPIC, or - to show batches.",
    )
    event_log: str | None = option("--event-log DATA", help="A data folder (path or URL) that events are added to.")
    checkpoint: str | None = option(
        "--checkpoint DIR",
        help="Path or URL where the stream keeps its position and state; by default below a table of --out. Needed for "
        "a topic.",
    )
    quotas: list[str] | None = option(
        "--quotas FILE", help="Quotas of this file instead of those in the store; may be repeated."
    )


@option_group("Batches")
class BatchOptions:
    """The options about the batches of a stream."""

    once: bool = flag("--once", help="Process everything that is there now, and end.")
    interval: str = option("--interval TIME", default="5s", help="The interval between batches.")
    batch_size: int | None = option(
        "--batch-size N",
        min=1,
        help="At most so many records (of a folder: files) per batch; 5,000,000 records or 100 files by default.",
    )
    lateness: str = option(
        "--lateness TIME",
        default="10s",
        help="How far behind its broker's latest an event may be; older ones are counted.",
    )
    from_beginning: bool = option(
        "--from-beginning/--from-end", default=True, help="Where a new stream begins in a topic."
    )
    allow_data_loss: bool = flag(
        "--allow-data-loss", help="Continue where a topic's records were deleted before they were read."
    )
    kafka_config: Path | None = option("--kafka-config FILE", help="Kafka's client properties for a topic as SOURCE.")
    producer_config: Path | None = option(
        "--producer-config FILE", help="librdkafka's properties for a topic as --out."
    )


@service("STREAM")
def stream(
    *,
    source: SourceText,
    target: StreamTargetOptions,
    store: StoreOrContext,
    batches: BatchOptions,
    windows: ClientWindow,
    engine: Annotated[EngineOptions, Without("engine", "as_of")],
) -> None:
    """Keep live usage and throttle state per quota bucket, from a stream of events.

    It continues where it ended, even after a crash: every event counts once. Ctrl-C ends it.
    """
    require_libraries(*LIBRARIES, "pyspark")
    from kafka_quotas.pipeline.stream import job  # noqa: PLC0415 - loads PySpark

    read_from = parse_source(source)
    if isinstance(read_from, TopicSource):
        read_from = replace(
            read_from,
            from_beginning=batches.from_beginning,
            may_lose=batches.allow_data_loss,
            properties=read_properties(batches.kafka_config) if batches.kafka_config else {},
        )

    def in_force() -> Proposal:
        return proposal_of_file(*target.quotas) if target.quotas else proposal_of_store(store)

    in_force()  # what is wrong with them shows before Spark starts
    with _checkpoint(target.checkpoint, target.out) as kept, _stop_on_signals() as stop:
        plan = job.StreamPlan(
            source=read_from,
            target=_target(target.out, batches.producer_config),
            data=target.event_log,
            checkpoint=kept,
            spark=engine.spark(),
            quotas=in_force,
            interval_s=None if batches.once else float(parse_duration_ms(batches.interval) / 1000),
            batch_size=batches.batch_size,
            lateness_ms=round(parse_duration_ms(batches.lateness)),
            window=windows.settings().client,
            report=_report_batch,
            show=_show,
            stop=stop,
        )
        job.stream(plan)


def _target(out: str, producer_config: Path | None) -> str | TopicSource | None:
    if out == CONSOLE:
        return None
    if not out.startswith(SCHEME):
        return out
    return replace(parse_topic(out), properties=read_properties(producer_config) if producer_config else {})


@contextmanager
def _checkpoint(place: str | None, out: str) -> Iterator[str]:
    """Yield the place of the checkpoint.

    Without a named one, the checkpoint is temporary if the rows go to the console, else in the folder of the table.
    """
    if place is not None:
        yield place
    elif out == CONSOLE:
        with tempfile.TemporaryDirectory(prefix="kafka-quotas-stream-") as scratch:
            yield scratch
    elif out.startswith(SCHEME):
        raise UsageError("a stream to a topic needs --checkpoint DIR", hint="a folder that lasts, one per stream")
    else:
        yield f"{out.rstrip('/')}/{_CHECKPOINT}"


@contextmanager
def _stop_on_signals() -> Iterator[threading.Event]:
    """Yield an event that SIGTERM sets, while Ctrl-C interrupts as usual."""
    stop = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: stop.set())
    try:
        yield stop
    finally:
        signal.signal(signal.SIGTERM, before)


def _report_batch(batch: "Batch", elapsed_s: float) -> None:
    parts = [f"{batch.events:,} events", f"{batch.buckets:,} buckets"]
    if batch.late:
        parts.append(f"{batch.late:,} charges too late")
    if batch.unreadable:
        parts.append(f"{batch.unreadable:,} that can't be read")
    write(f"batch {batch.batch_id}: {', '.join(parts)}, {elapsed_s:.2f} s", sys.stderr)


def _show(rows: "pa.Table", buckets: int) -> None:
    """Print the buckets nearest to their limits, those without a limit last."""
    ranked = rows.to_pylist()
    fields = ("broker_id", "quota_type", "user", "client_id", "rate", "quota", "throttled_events", "throttled_until_ms")
    table = Table.of(
        "broker, quota, user, client-id, rate>, limit>, throttled>, held until>",
        [[row[name] for name in fields] for row in [{**each, "rate": round(each["rate"], 1)} for each in ranked]],
        f"batch {ranked[0]['batch_id']}: {format_count(buckets, 'bucket')} with events",
    )
    print_table(table, sys.stdout)
