"""What the pipeline's commands share: options, the quotas they are about, recorded events, and a job's progress."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kafka_quotas.cli.framework.option_groups import option, option_group, option_info
from kafka_quotas.cli.options.stores import StoreOptions, open_journal
from kafka_quotas.cli.output.listing import Cell, View
from kafka_quotas.cli.output.render import is_terminal, write
from kafka_quotas.commands.quotas.journal import contents_between
from kafka_quotas.core.changes.plan import Content
from kafka_quotas.core.errors import StoreError, UsageError
from kafka_quotas.core.groups.group import Group
from kafka_quotas.core.model.entity import EVERYTHING, shown_name
from kafka_quotas.core.model.value_format import format_count, format_typed_rate
from kafka_quotas.pipeline.buckets.proposal import DefaultScope, Proposal
from kafka_quotas.pipeline.engine.events import EventsRequest, EventsWatcher, RecordedEvents, open_events, recorded_span
from kafka_quotas.pipeline.engine.job import Engine, EngineChoice, JobProgress, ignore_progress
from kafka_quotas.pipeline.engine.spark_settings import DEFAULT_MASTER, SparkSettings, submitted_master

if TYPE_CHECKING:
    from kafka_quotas.pipeline.engine.events import Events

_SHOWN_ROWS: Final = 30
_SECOND_MS: Final = 1000
JOURNAL: Final = "journal"
"""The word in place of a file for the quotas in force at the time of each event."""
Quotas = Annotated[
    str | None,
    option_info(
        "--quotas FILE|journal",
        help="Quotas of this file instead of those in the store; journal: those that were in force at the time of each "
        "event, by the store and this machine's journal of its changes.",
    ),
]
Data = Annotated[str, typer.Argument(metavar="DATA", help="The folder or URL that ingest wrote to.")]


@option_group("Engine")
class EngineOptions:
    """The options about where a job runs: on this machine, or on Spark with these settings."""

    engine: Engine = option(
        "--engine",
        default=Engine.AUTO,
        help="local: this machine, without Spark; spark; auto: Spark for remote data and more than 5 million events.",
        case_sensitive=False,
    )
    master: str | None = option(
        "--master URL",
        help=f"Spark's master: {DEFAULT_MASTER} (the default), spark://HOST:PORT, yarn, k8s://URL, or sc://HOST:PORT "
        "of a Spark Connect server. Naming one chooses Spark.",
    )
    as_of: int | None = option(
        "--as-of N", min=1, help="Read the data at version N of the Delta table events, which ingest prints."
    )
    env_archive: Path | None = option(
        "--env-archive FILE",
        help="A packed Python environment (venv-pack, conda-pack) for executors that lack the libraries.",
    )
    spark_conf: list[str] | None = option(
        "--spark-conf KEY=VALUE",
        help="A property of Spark, as spark.driver.memory=4g; spark.jars.packages adds to Delta Lake's jars, and with "
        "spark.jars none are fetched; may be repeated.",
    )

    def spark(self) -> SparkSettings:
        """Return the session that the options describe."""
        from platformdirs import user_log_path  # noqa: PLC0415 - only a job pays for it

        properties = dict(map(_property, self.spark_conf or ()))
        jars, packages = (properties.pop(name, "").split(",") for name in ("spark.jars", "spark.jars.packages"))
        return SparkSettings(
            log_file=user_log_path("kafka-quotas") / "spark.log",
            master=self.named_master or DEFAULT_MASTER,
            env_archive=self.env_archive,
            packages=tuple(filter(None, packages)),
            jars=tuple(filter(None, jars)),
            properties=properties,
        )

    @property
    def named_master(self) -> str | None:
        """The master that the user named, to the command or to `spark-submit`."""
        return self.master or submitted_master()

    def events(self, data: str) -> EventsRequest:
        """Return the events in a folder and the engine that the options name."""
        return EventsRequest(
            data=data, spark=self.spark(), engine=self.engine, master=self.named_master, as_of=self.as_of
        )


def _property(pair: str) -> tuple[str, str]:
    key, equals, value = pair.partition("=")
    if not equals or not key:
        raise UsageError(f"--spark-conf {pair!r} is not KEY=VALUE", hint="--spark-conf spark.executor.memory=4g")
    return key, value


@contextmanager
def job_watcher() -> Iterator[EventsWatcher]:
    """Yield a watcher of a job, which draws a bar on a terminal and notes the chosen engine."""

    def note(choice: EngineChoice) -> None:
        write(f"note: using the {choice.engine} engine ({choice.reason})", sys.stderr)

    if not is_terminal(sys.stderr):
        yield EventsWatcher(progress=ignore_progress, chosen=note)
        return
    from rich.console import Console  # noqa: PLC0415 - only a live view pays for Rich
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(file=sys.stderr, highlight=False), transient=True) as bar:
        task = bar.add_task("", total=None)

        def draw(progress: JobProgress) -> None:
            bar.update(task, description=progress.stage, completed=progress.done, total=progress.total or None)

        yield EventsWatcher(progress=draw, chosen=note)


@contextmanager
def recorded_events(engine: EngineOptions, data: str) -> "Iterator[tuple[Events, Callable[[str], None]]]":
    """Yield the events in a folder, and a function that names a stage of which nothing is counted."""
    with job_watcher() as watcher, open_events(engine.events(data), watcher) as events:
        yield events, lambda stage: watcher.progress(JobProgress(stage=stage, done=0, total=0))


def rows_limit(output: View) -> int | None:
    """Return the most rows to rank for a view: 30 of a table unless it has a limit, None for all."""
    return (output.limit_or(_SHOWN_ROWS) or None) if output.is_table else None


def rates(quota_type: str, *values: float | None) -> list[Cell]:
    """Return values of a quota type as cells."""
    return [format_typed_rate(quota_type, value) for value in values]


def proposal_of_file(path: str, *more: str) -> Proposal:
    """Return the quotas of one file or several together, named after the first."""
    from kafka_quotas.commands.declarative.reading import declared  # noqa: PLC0415 - most runs ask a store

    found = declared([path, *more])
    entries = tuple(
        (each.entity, {key: value for key, value in each.quotas.items() if value is not None}) for each in found.entries
    )
    return Proposal(name=path, entries=entries, groups=found.groups)


def proposal_of_store(store: StoreOptions, recorded: EventsRequest | None = None) -> Proposal:
    """Return the quotas of the store that the options, variables and contexts name, called by its address.

    With `recorded` they are those that it had while these events were recorded, by the journal of its changes. Times
    are cut to whole seconds.
    """
    with closing(store.choose().open_existing()) as opened:
        url, is_static, groups = opened.url, opened.kind.is_static, opened.groups()
        content: Content = {entry.entity: entry.quotas for entry in opened.describe(EVERYTHING)}

    def proposal(name: str, content: Content) -> Proposal:
        entries = tuple(content.items())
        stored, static = ((), entries) if is_static else (entries, ())
        return Proposal(name=name, entries=stored, static=static, groups=groups)

    if recorded is None:
        return proposal(url, content)
    first_ms, last_ms = recorded_span(recorded) or (0, 0)
    entries = open_journal().newest_first()
    (_, first), *later = contents_between(content, entries, store_url=url, first_ms=first_ms, last_ms=last_ms)
    by_second = {at_ms // _SECOND_MS * _SECOND_MS: each for at_ms, each in later}
    changed = tuple((at_ms, proposal(url, each)) for at_ms, each in by_second.items())
    return replace(proposal(f"{url} by the journal", first), later=changed)


def proposal_in_force(quotas: str | None, store: StoreOptions, events: EventsRequest) -> Proposal:
    """Return the quotas of the file `quotas` or the journal, those in the store where none is named."""
    if quotas is None or quotas == JOURNAL:
        return proposal_of_store(store, None if quotas is None else events)
    return proposal_of_file(quotas)


def note_changes(quotas: str | None, in_force: Proposal, events: RecordedEvents) -> None:
    """Note where quotas changed meanwhile, and those that the store has now were taken."""
    first_ms, last_ms = events.first_ms, events.last_ms
    if quotas is not None or first_ms is None or last_ms is None:
        return
    with suppress(StoreError):  # a journal that can't be read is no reason to withhold a result
        entries = takewhile(lambda each: each.time_ms > first_ms, open_journal().newest_first())
        if changes := sum(each.store_url == in_force.name and each.time_ms <= last_ms for each in entries):
            write(
                f"note: {format_count(changes, 'change')} of quotas in {in_force.name} came while this was recorded; "
                "--quotas journal takes each quota for its time",
                sys.stderr,
            )


def unseen_members(groups: Sequence[Group], scope: DefaultScope) -> Iterator[str]:
    """Yield why some members of groups are not seen in the records, or by the kind of default."""
    part = {DefaultScope.USER: "client_id", DefaultScope.CLIENT_ID: "user"}.get(scope)
    members = [member for group in groups for member in group.members]
    if part is not None and any(member.names(part) is not None for member in members):
        whose = f"members of groups by {part.replace('_', '-')} are not seen with --default-of {scope.value}"
        yield f"{whose}; --default-of pair sees them"
    if any(member.listener is not None or member.address is not None for member in members):
        yield "members of groups by listener or address are not seen, as the records have neither"


def nulls_for_shared(row: dict[str, Any]) -> dict[str, Any]:
    """Return a bucket's figures with null in place of the names that clients share."""
    return row | {name: row[name] or None for name in ("user", "client_id")}


def bucket_text(user: str | None, client_id: str | None) -> str:
    """Return a bucket's name by the parts that identify it: `alice`, `alice, client app`, `client app`."""
    parts = [shown_name(user)] if user else []
    if client_id:
        parts.append(f"client {shown_name(client_id)}")
    return ", ".join(parts) or "(no client-id)"
