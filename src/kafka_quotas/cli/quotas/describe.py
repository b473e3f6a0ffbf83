"""`kafka-quotas describe`: what is stored, or with --effective what really applies."""

import io
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar, NamedTuple

import typer

from kafka_quotas.cli.framework.commands import ORDER, EntityCommand, as_command
from kafka_quotas.cli.framework.option_groups import Without, flag, option, option_group
from kafka_quotas.cli.framework.store_choice import StoreChoice, print_static_note
from kafka_quotas.cli.options.entity import EntityOptions, selected_filter, selected_parts
from kafka_quotas.cli.options.stores import ListingView, Policy, StoreOptions, UsageOptions, store_for
from kafka_quotas.cli.output.listing import TABLE_VIEW, Cell, Listing, Output, Table, View, listed
from kafka_quotas.cli.output.render import (
    DEFAULT_ROWS,
    folded,
    plain_value,
    print_listing,
    print_table,
    write,
)
from kafka_quotas.commands.quotas.describe import ClusterView, EffectiveResult, look_at_cluster
from kafka_quotas.commands.quotas.describe import describe as run_describe
from kafka_quotas.commands.quotas.describe import effective as run_effective
from kafka_quotas.core.described import Described, document_of, documents_of
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.formats.documents import read_document
from kafka_quotas.core.model.entity import CLIENT_ID, IP, USER, Match, shown_name
from kafka_quotas.core.model.quota_key import CONTROLLER_MUTATION_RATE
from kafka_quotas.core.model.value_format import (
    format_count,
    format_quota,
    format_rate,
    format_share,
    format_throttle_time,
)
from kafka_quotas.core.resolution.effective import NOTHING_MATCHED, EffectiveQuota, Other, QuotaClient
from kafka_quotas.core.resolution.quota_resolver import bucket_of_tags, group_text
from kafka_quotas.core.resolution.usage import BrokerUsage, Usage, is_held_back, usage_under
from kafka_quotas.stores import QuotaEntry


@option_group("Effective quotas")
class _EffectiveOptions:
    effective: bool = flag(
        "--effective",
        help="Show what really applies to --user, --client, --ip: per quota key the limit and the level that won. "
        "A --user without --client is answered for each kind of its clients, and without any of these it is every "
        "client that the store implies.",
    )
    no_client_id: bool = flag("--no-client-id", help="With --effective: a client that sends no client-id.")
    clients: Path | None = option(
        "--clients FILE",
        help="With --effective: answer for the clients of a CSV file with a header of user, client_id and ip.",
    )
    brokers: int | None = option(
        "--brokers N", min=1, help="With --effective: show the limits, which hold per broker, added up over N brokers."
    )
    topic: str | None = option(
        "--topic NAME",
        help="The threshold of a topic. With --effective and a Kafka store: the limits added up over the brokers "
        "that lead this topic.",
    )
    with_usage: bool = flag(
        "--with-usage",
        help="With --effective: add the rate and the throttle time of the client's buckets at each broker, from a "
        "running daemon or with --prometheus from the brokers' metrics.",
    )
    policy: Policy = None
    usage: Annotated[UsageOptions, Without("metric_names")]

    @property
    def only_with_effective(self) -> list[str]:
        """The options on the command line that mean nothing without `--effective`, as they are spelled."""
        spelled = {
            "--no-client-id": self.no_client_id,
            "--clients": self.clients,
            "--brokers": self.brokers,
            "--policy": self.policy,
            "--with-usage": self.with_usage,
        }
        return [name for name, value in spelled.items() if value] + self.usage.named


def _clients_asked(named: EntityOptions, order: Sequence[str], asked: _EffectiveOptions) -> tuple[QuotaClient, ...]:
    if named.client == "":
        raise UsageError(
            "--client is empty", hint="is the shell variable behind it set? --no-client-id asks for the empty client-id"
        )
    parts = {part.entity_type: part for part in selected_parts(named, order)}
    if asked.clients:
        if parts or asked.no_client_id:
            raise UsageError("--clients already names the clients", hint="leave out the entity options")
        return read_clients(asked.clients)
    for part in parts.values():
        if part.match is not Match.EXACT:
            raise UsageError(
                f"--effective is about one client, which has no default {part.entity_type}",
                hint="name the user, client-id or address; without any, every client that is known is listed",
            )
    if asked.no_client_id and CLIENT_ID in parts:
        raise UsageError("--client and --no-client-id exclude each other", hint="leave out one of them")
    names = {entity_type: part.name for entity_type, part in parts.items()}
    client = QuotaClient(
        user=names.get(USER), client_id="" if asked.no_client_id else names.get(CLIENT_ID), ip=names.get(IP)
    )
    return () if client == QuotaClient() else (client,)


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


@as_command(EntityCommand)
def describe(
    ctx: typer.Context,
    *,
    named: Annotated[EntityOptions, Without("topic")],
    asked: _EffectiveOptions,
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
    named: EntityOptions, order: Sequence[str], asked: _EffectiveOptions, choice: StoreChoice, output: View
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
    named: EntityOptions, order: Sequence[str], asked: _EffectiveOptions, choice: StoreChoice, output: View
) -> None:
    if asked.usage.named and not asked.with_usage:
        raise UsageError(f"{asked.usage.named[0]} goes with --with-usage")
    clients = _clients_asked(named, order, asked)
    reading = asked.usage.read(choice) if asked.with_usage else None
    choice = choice if reading is None else store_for(choice, reading)
    usages = None if reading is None else reading.usages
    with closing(choice.open_existing()) as opened:
        cluster, warnings = look_at_cluster(opened, brokers=asked.brokers, topic=asked.topic)
        result = run_effective(
            opened,
            clients=clients,
            cluster=cluster,
            warnings=warnings,
            usages=usages,
            policy=asked.policy,
        )
    _print_effective(result, output)
    print_static_note(result.store_url)


def _listing(entries: Sequence[QuotaEntry]) -> Listing:
    kept = [QuotaEntry(entity, dict(sorted(quotas.items()))) for entity, quotas in entries]
    return listed(
        "quotas",
        {"entries": documents_of(kept)},
        "entity, key!, value>!, in words>!",
        [
            (str(entity), key, plain_value(key, value), format_quota(key, value))
            for entity, quotas in kept
            for key, value in quotas.items()
        ],
    )


Usages = tuple[Usage, ...] | None
"""What was seen at brokers, None where nobody asked."""
_SCOPES = ("per broker", "on the active controller")
_ABOUT_CLIENT = "who is asked about; any_other names the types of which it has any name that nothing is stored for"
_SCOPE = (
    f"note: limits hold per broker, {CONTROLLER_MUTATION_RATE.name} on the active controller; "
    "name one client, or take --output json, to see who shares a bucket and what is overridden"
)


@dataclass(frozen=True, slots=True)
class QuotaRow:
    """An effective quota, with its sum over a cluster and the usage at its brokers."""

    DOCUMENT: ClassVar = (
        "key=quota.key.name quota.limit unit=quota.key.unit scope quota.level quota.entity quota.bucket "
        "quota.shared_with quota.overridden cluster_total topic_total quota.warnings usage"
    )
    quota: EffectiveQuota
    cluster: ClusterView | None
    usages: Usages

    @property
    def scope(self) -> Annotated[str, Described(choices=_SCOPES)]:
        """Where the limit holds: each broker enforces limits by itself, mutations pass the active controller."""
        return _SCOPES[self.quota.key == CONTROLLER_MUTATION_RATE]

    @property
    def cluster_total(self) -> Annotated[float | None, Described(text="null without --brokers or a cluster")]:
        """What all brokers let through together."""
        return None if self.cluster is None else self.cluster.total(self.quota.key, self.quota.limit)

    @property
    def topic_total(self) -> Annotated[float | None, Described(text="null without --topic")]:
        """What the leaders of the topic let through together."""
        return None if self.cluster is None else self.cluster.topic_total(self.quota.key, self.quota.limit)

    @property
    def usage(self) -> Annotated[tuple[BrokerUsage, ...] | None, Described(text="null without --with-usage")]:
        """The usage at each broker that reported any."""
        if self.usages is None:
            return None
        found = usage_under(self.quota, self.usages)
        return tuple(BrokerUsage(each, self.quota.limit if each.limit is None else each.limit) for each in found)


class NamedClient(NamedTuple):
    """The names of a client, None for a part without one."""

    user: str | None
    client_id: str | None
    ip: str | None
    any_other: tuple[str, ...]

    @classmethod
    def of(cls, client: QuotaClient) -> "NamedClient":
        """Return the names of a client."""
        parts = dict(client.parts)
        user, client_id, ip = (
            name if isinstance(name := parts.get(kind), str) else None for kind in (USER, CLIENT_ID, IP)
        )
        others = tuple(kind.replace("-", "_") for kind, name in client.parts if isinstance(name, Other))
        return cls(user, client_id, ip, others)


class ClientRow(NamedTuple):
    """A client and its effective quotas."""

    client: Annotated[NamedClient, Described(text=_ABOUT_CLIENT, prefix="")]
    group: Annotated[str | None, Described(text="the innermost group that it is in; null for none")]
    quotas: tuple[QuotaRow, ...]


def _print_effective(result: EffectiveResult, output: View) -> None:
    for warning in result.warnings:
        write(f"warning: {warning}", sys.stderr)
    if output.is_table and not (output.columns or output.limit) and len(result.outcomes) == 1:
        ((client, quotas),) = result.outcomes
        in_group = "".join(
            f", in {f'group {shown_name(each)}' if each else 'no group'}" for each in result.groups.values()
        )
        _print_one(client, _rows(result, quotas), in_group)
    else:
        clients = [
            document_of(ClientRow(NamedClient.of(client), result.groups.get(client), _rows(result, quotas)))
            for client, quotas in result.outcomes
        ]
        data = {**document_of(result), "clients": clients}
        print_listing(Listing(noun="effective", data=data, table=_many(result)), output)
        for line in _odd(result):
            write(line, sys.stderr)
        if output.form in (Output.TABLE, Output.MARKDOWN):
            write(_SCOPE, sys.stderr)
    for note in result.notes:
        write(f"note: {note}", sys.stderr)


def _print_one(client: QuotaClient, rows: Sequence[QuotaRow], in_group: str) -> None:
    table = Table.of(
        "key!, limit>!, in words>!, level!, set on",
        [[row.quota.key.name, *_cells(row.quota)] for row in rows],
        f"What applies to {client}{in_group}",
    )
    print_table(table, sys.stdout)
    for row in rows:
        details = [*_details(row)]
        if details:
            whose = None if row.quota.bucket is None else group_text(bucket_of_tags(*row.quota.bucket))
            headline = f"{row.quota.key.name}{f', {whose}' if whose else ''}:"
            write("\n" + "\n".join(map(folded, (headline, *details))), sys.stdout)
    around = {row.quota.key.name for row in rows if row.quota.level == "group"}
    unmatched = [row.quota.key.name for row in rows if NOTHING_MATCHED in row.quota.warnings]
    for names, but in ((set(unmatched) - around, ""), (around, " by Kafka's levels; its groups limit it")):
        found = ", ".join(name for name in unmatched if name in names)
        if found:
            write("\n" + folded(f"{found}: {NOTHING_MATCHED}{but}"), sys.stdout)


def _cells(quota: EffectiveQuota) -> list[Cell]:
    if quota.limit is None:
        return ["unlimited", "", "", ""]
    return [
        plain_value(quota.key.name, quota.limit),
        format_quota(quota.key.name, quota.limit),
        str(quota.level),
        str(quota.entity),
    ]


def _details(row: QuotaRow) -> Iterator[str]:
    quota, key, cluster = row.quota, row.quota.key.name, row.cluster
    if quota.limit is not None:
        yield f"  {row.scope}; bucket used by {quota.shared_with}"
    if cluster is not None and row.cluster_total is not None:
        line = f"  x {cluster.brokers} brokers = up to {format_quota(key, row.cluster_total)}"
        if row.topic_total is not None:
            leads = f"topic {cluster.topic} leads on {cluster.leading_brokers}"
            line += f"; {leads}: {format_quota(key, row.topic_total)}"
        yield line
    for lost in quota.overridden:
        yield f"  overrides level {lost.level}, {lost.entity}: {format_quota(key, lost.limit)}"
    yield from (f"  warning: {warning}" for warning in quota.warnings if warning != NOTHING_MATCHED)
    for at_broker in row.usage or ():
        usage, share = at_broker.usage, format_share(at_broker.share)
        held = is_held_back(usage, at_broker.limit)
        throttled = f", throttled for {format_throttle_time(usage.throttle_ms)}" if held else ""
        used = f", {share} used" if share else ""
        yield f"  at broker {usage.broker}: {format_rate(usage.key, usage.observed)}{used}{throttled}"
    if row.usage == ():
        yield "  no rates were seen"


def _rows(result: EffectiveResult, quotas: Sequence[EffectiveQuota]) -> tuple[QuotaRow, ...]:
    return tuple(QuotaRow(quota, result.cluster, result.usages) for quota in quotas)


def _many(result: EffectiveResult) -> Table:
    titles = [] if result.cluster is None else [f"x {result.cluster.brokers} brokers"]
    rows: list[list[Cell]] = []
    for client, quotas in result.outcomes:
        name = str(client)
        for row in _rows(result, [quota for quota in quotas if quota.limit is not None]):
            key, total = row.quota.key.name, row.cluster_total
            _, words, level, entity = _cells(row.quota)
            totals = ["" if total is None else format_quota(key, total) for _ in titles]
            rows.append([name, key, words, *totals, level, entity])
            name = ""
        if name:
            rows.append([name, "(any)", "unlimited", *("" for _ in titles), "", ""])
    marked = "".join(f"{title}>!, " for title in titles)
    return Table.of(f"client, key!, limit>!, {marked}level!, set on", rows)


def _odd(result: EffectiveResult) -> Iterator[str]:
    for client, quotas in result.outcomes:
        for quota in quotas:
            for warning in quota.warnings:
                if warning != NOTHING_MATCHED:
                    yield f"warning: {client}: {quota.key.name}: {warning}"
