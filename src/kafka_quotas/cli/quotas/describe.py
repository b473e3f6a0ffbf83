"""`kafka-quotas describe`: what is stored, or with --effective what really applies."""

import io
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from kafka_quotas.cli.framework.commands import ORDER, EntityCommand
from kafka_quotas.cli.framework.option_groups import Without, option, option_group
from kafka_quotas.cli.framework.store_choice import StoreChoice, print_static_note
from kafka_quotas.cli.options.entity import EntityOptions, selected_filter, selected_parts
from kafka_quotas.cli.options.stores import ListingView, StoreOptions, UsageOptions, store_for
from kafka_quotas.cli.output.document import documents_of
from kafka_quotas.cli.output.render import (
    TABLE_VIEW,
    Listing,
    Table,
    View,
    columns,
    print_listing,
    write,
)
from kafka_quotas.cli.output.selection import DEFAULT_ROWS
from kafka_quotas.cli.output.values import plain_value
from kafka_quotas.cli.quotas.effective_view import print_effective
from kafka_quotas.commands.quotas.describe import describe as run_describe
from kafka_quotas.commands.quotas.describe import effective as run_effective
from kafka_quotas.commands.quotas.describe import look_at_cluster
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.formats.documents import read_document
from kafka_quotas.core.model.entity import CLIENT_ID, IP, USER, Match
from kafka_quotas.core.model.value_format import format_count, format_quota
from kafka_quotas.core.resolution.effective import QuotaClient
from kafka_quotas.core.resolution.quota_resolver import LEVEL_PATHS, LevelKind
from kafka_quotas.stores import QuotaEntry

_KINDS: dict[str, LevelKind] = {kind.value: kind for kind in LevelKind} | {
    "1": LevelKind.PAIR,
    "2": LevelKind.PAIR,
    "3": LevelKind.USER,
    "4": LevelKind.PAIR,
    "5": LevelKind.PAIR,
    "6": LevelKind.USER,
    "7": LevelKind.CLIENT,
    "8": LevelKind.CLIENT,
}


@option_group("Effective quotas")
class EffectiveOptions:
    """The options that go with `--effective`, and `--topic`, which alone names a topic's threshold."""

    effective: bool = option(
        "--effective",
        default=False,
        help="Show what really applies to --user, --client, --ip: per quota key the limit and the level that won. "
        "A --user without --client is answered for each kind of its clients.",
    )
    no_client_id: bool = option(
        "--no-client-id", default=False, help="With --effective: a client that sends no client-id."
    )
    all_clients: bool = option(
        "--all", default=False, help="With --effective: every client that the store, or --clients, implies."
    )
    clients: Path | None = option(
        "--clients FILE",
        help="With --effective: answer for the clients of a CSV file with a header of user, client_id and ip.",
    )
    history: list[str] | None = option(
        "--history LEVELS",
        help="With --effective: kinds of levels that the broker has seen quotas of before: client, user, pair, or the "
        "numbers 1 to 8; separated by commas.",
    )
    brokers: int | None = option(
        "--brokers N",
        min=1,
        help="With --effective: show the limits, which hold per broker, added up over N brokers.",
    )
    topic: str | None = option(
        "--topic NAME",
        help="The threshold of a topic. With --effective and a Kafka store: the limits added up over the brokers "
        "that lead this topic.",
    )
    with_usage: bool = option(
        "--with-usage",
        default=False,
        help="With --effective: add the rate and the throttle time of the client's buckets at each broker, from a "
        "running daemon or with --prometheus from the brokers' metrics.",
    )
    usage: UsageOptions

    @property
    def only_with_effective(self) -> list[str]:
        """The options on the command line that mean nothing without `--effective`, as they are spelled."""
        spelled = {
            "--no-client-id": self.no_client_id,
            "--all": self.all_clients,
            "--clients": self.clients,
            "--history": self.history,
            "--brokers": self.brokers,
            "--with-usage": self.with_usage,
        }
        return [name for name, value in spelled.items() if value] + self.usage.named


def clients_asked(named: EntityOptions, order: Sequence[str], asked: EffectiveOptions) -> tuple[QuotaClient, ...]:
    """Return the clients that the options name, none for all that the store knows."""
    if named.client == "":
        raise UsageError(
            "--client is empty", hint="is the shell variable behind it set? --no-client-id asks for the empty client-id"
        )
    parts = {part.entity_type: part for part in selected_parts(named, order)}
    if asked.all_clients or asked.clients:
        if parts or asked.no_client_id:
            raise UsageError("--all and --clients already name the clients", hint="leave out the entity options")
        return read_clients(asked.clients) if asked.clients else ()
    for part in parts.values():
        if part.match is not Match.EXACT:
            raise UsageError(
                f"--effective is about one client, which has no default {part.entity_type}",
                hint="name the user, client-id or address; --all lists every client that is known",
            )
    if asked.no_client_id and CLIENT_ID in parts:
        raise UsageError("--client and --no-client-id exclude each other", hint="leave out one of them")
    names = {entity_type: part.name for entity_type, part in parts.items()}
    client = QuotaClient(
        user=names.get(USER), client_id="" if asked.no_client_id else names.get(CLIENT_ID), ip=names.get(IP)
    )
    if client == QuotaClient():
        raise UsageError("no client is named", hint="--user NAME, --client ID, --no-client-id, --ip ADDRESS, or --all")
    return (client,)


def parse_history(texts: Sequence[str]) -> tuple[LevelKind, ...]:
    """Return the kinds of levels that the texts name, each once."""
    kinds: dict[LevelKind, None] = {}
    for name in (part.strip() for text in texts for part in text.split(",")):
        if name not in _KINDS:
            levels = "; ".join(f"{level} {path}" for level, path in LEVEL_PATHS.items() if str(level) in _KINDS)
            raise UsageError(f"not a level: {name!r}", hint=f"client, user, pair, or a number: {levels}")
        kinds[_KINDS[name]] = None
    return tuple(kinds)


def read_clients(path: Path) -> tuple[QuotaClient, ...]:
    """Read the clients of a CSV file.

    Its columns user, client-id (empty: the client sends none) and ip are all optional.
    """
    import csv  # noqa: PLC0415 - only --clients needs it

    try:
        text = io.StringIO(read_document(path).decode("utf-8-sig"), newline="")
        rows = list(csv.DictReader(text, strict=True))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"cannot read {path}: {reason}", hint=_HEADER) from error
    clients = tuple(dict.fromkeys(_client(path, number, row) for number, row in enumerate(rows, start=2)))
    if not clients:
        raise UsageError(f"no client in {path}", hint=_HEADER)
    return clients


_HEADER = "it must be CSV in UTF-8 with a header of the columns user, client_id and ip, at least one of them"


def _client(path: Path, number: int, row: dict[str, str | None]) -> QuotaClient:
    row = {str(name).replace("-", "_"): text for name, text in row.items()}
    if not set(row) <= {"user", "client_id", "ip"}:
        raise UsageError(f"{path}, line {number}: unknown columns", hint=_HEADER)
    user, client_id, ip = row.get("user") or None, row.get("client_id"), row.get("ip") or None
    if user is None and ip is None and not client_id:
        raise UsageError(f"{path}, line {number}: nobody is named", hint=_HEADER)
    return QuotaClient(user=user, client_id=client_id if user or client_id else None, ip=ip)


app = typer.Typer(add_completion=False)


@app.command(cls=EntityCommand)
def describe(
    ctx: typer.Context,
    *,
    named: Annotated[EntityOptions, Without("topic")],
    asked: EffectiveOptions,
    store: StoreOptions,
    output: ListingView = TABLE_VIEW,
) -> None:
    """Show stored quotas, or with --effective which quotas a client really gets.

    Without an entity everything is shown. What --output json prints of stored quotas is a list of entities that can be
    read back. Limits hold per broker, not per cluster.
    """
    choice, order = store.choose(), ctx.meta[ORDER]
    if asked.effective:
        _effective(named, order, asked, choice, output)
    else:
        _stored(replace(named, topic=asked.topic), order, asked, choice, output)


def _stored(
    named: EntityOptions, order: Sequence[str], asked: EffectiveOptions, choice: StoreChoice, output: View
) -> None:
    if asked.only_with_effective:
        raise UsageError(f"{', '.join(asked.only_with_effective)}: only with --effective", hint="add --effective")
    quota_filter = selected_filter(named, order)
    with closing(choice.open_existing()) as opened:
        entries = run_describe(opened, quota_filter=quota_filter)
    listing = _listing(entries)
    print_listing(listing, output)
    if output.is_table and not output.limit and len(listing.table.rows) > DEFAULT_ROWS:
        quotas = format_count(len(listing.table.rows), "quota", separator=",")
        write(f"note: {quotas} of {format_count(len(entries), 'entity', separator=',')}", sys.stderr)
    if not entries:
        write(f"note: no stored quota matches in {opened.url}", sys.stderr)
        if any("*" in (name or "") for name in (named.user, named.client, named.ip)):
            write("hint: names are exact here; export --selector takes patterns", sys.stderr)
        print_static_note(opened.url)


def _effective(
    named: EntityOptions, order: Sequence[str], asked: EffectiveOptions, choice: StoreChoice, output: View
) -> None:
    if named.strict:
        raise UsageError("--strict and --effective exclude each other", hint="a client is subject to every level")
    if asked.usage.named and not asked.with_usage:
        raise UsageError(f"{asked.usage.named[0]} goes with --with-usage")
    clients = clients_asked(named, order, asked)
    history = parse_history(asked.history or ())
    reading = asked.usage.read(choice) if asked.with_usage else None
    choice = choice if reading is None else store_for(choice, reading)
    usages = None if reading is None else reading.usages
    with closing(choice.open_existing()) as opened:
        cluster, warnings = look_at_cluster(
            opened, settings=choice.settings(), brokers=asked.brokers, topic=asked.topic
        )
        result = run_effective(
            opened, clients=clients, history=history, cluster=cluster, warnings=warnings, usages=usages
        )
    print_effective(result, output)
    print_static_note(result.store_url)


def _listing(entries: Sequence[QuotaEntry]) -> Listing:
    kept = [QuotaEntry(entity, dict(sorted(quotas.items()))) for entity, quotas in entries]
    return Listing(
        noun="quotas",
        items="entries",
        data={"entries": documents_of(kept)},
        table=Table(
            columns=columns("entity, key!, value>!, in words>!"),
            rows=[
                (str(entity), key, plain_value(key, value), format_quota(key, value))
                for entity, quotas in kept
                for key, value in quotas.items()
            ],
        ),
    )
