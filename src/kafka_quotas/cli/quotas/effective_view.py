"""Effective quotas in every form of output."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from shutil import get_terminal_size
from typing import Annotated, ClassVar, NamedTuple

from kafka_quotas.cli.output.document import document_of
from kafka_quotas.cli.output.render import (
    TABLE_VIEW,
    Cell,
    Listing,
    Output,
    Table,
    View,
    cell_text,
    columns,
    folded,
    is_terminal,
    print_listing,
    print_table,
    write,
)
from kafka_quotas.cli.output.values import plain_value
from kafka_quotas.commands.quotas.describe import ClusterView, EffectiveResult
from kafka_quotas.core.described import Described
from kafka_quotas.core.model.entity import CLIENT_ID, IP, USER
from kafka_quotas.core.model.quota_key import CONTROLLER_MUTATION_RATE
from kafka_quotas.core.model.value_format import format_quota, format_rate, format_share, format_throttle_time
from kafka_quotas.core.resolution.effective import NOTHING_MATCHED, EffectiveQuota, Other, QuotaClient
from kafka_quotas.core.resolution.usage import BrokerUsage, Usage, is_held_back, usage_under

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


class ClientRow(NamedTuple):
    """A client and its effective quotas."""

    client: Annotated[NamedClient, Described(text=_ABOUT_CLIENT, prefix="")]
    quotas: tuple[QuotaRow, ...]


def print_effective(result: EffectiveResult, output: View) -> None:
    """Print the effective quotas, with warnings and notes on standard error."""
    for warning in result.warnings:
        write(f"warning: {warning}", sys.stderr)
    if output.is_table and not (output.columns or output.limit) and len(result.outcomes) == 1:
        ((client, quotas),) = result.outcomes
        _print_one(client, _rows(result, quotas))
    else:
        listing = _listing(result)
        if output == TABLE_VIEW and is_terminal(sys.stdout) and _width(listing.table) > get_terminal_size().columns:
            _print_apart(listing.table)
        else:
            print_listing(listing, output)
        for line in _odd(result):
            write(line, sys.stderr)
        if output.form in (Output.TABLE, Output.MARKDOWN):
            write(_SCOPE, sys.stderr)
    for note in result.notes:
        write(f"note: {note}", sys.stderr)


def _print_one(client: QuotaClient, rows: Sequence[QuotaRow]) -> None:
    table = Table(
        columns=columns("key!, limit>!, in words>!, level!, set on"),
        rows=[[row.quota.key.name, *_cells(row.quota)] for row in rows],
        caption=f"What applies to {client}",
    )
    print_table(table, sys.stdout)
    for row in rows:
        details = [*_details(row)]
        if details:
            write("\n" + "\n".join(folded(line) for line in (f"{row.quota.key.name}:", *details)), sys.stdout)
    unmatched = [row.quota.key.name for row in rows if NOTHING_MATCHED in row.quota.warnings]
    if unmatched:
        write("\n" + folded(f"{', '.join(unmatched)}: {NOTHING_MATCHED}"), sys.stdout)


def _print_apart(table: Table) -> None:
    """Print the table for a narrow terminal, its first column as a headline above each group of rows."""
    client = ""
    rows: list[Sequence[Cell]] = []
    for first, *rest in [*table.rows, ["end"]]:
        if first and rows:
            print_table(Table(columns=table.columns[1:], rows=rows, caption=client), sys.stdout)
            write("", sys.stdout)
            rows = []
        client = str(first) if first else client
        rows.append(rest)


def _width(table: Table) -> int:
    lines = [[column.title for column in table.columns], *table.rows]
    gaps = 2 * (len(table.columns) - 1)
    return gaps + sum(max(len(cell_text(line[at])) for line in lines) for at in range(len(table.columns)))


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


def _listing(result: EffectiveResult) -> Listing:
    clients = [document_of(_client(client, _rows(result, quotas))) for client, quotas in result.outcomes]
    data = {**document_of(result), "clients": clients}
    return Listing(noun="effective", data=data, table=_many(result), items="clients", apart=True)


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
    return Table(columns=columns(f"client, key!, limit>!, {marked}level!, set on"), rows=rows)


def _odd(result: EffectiveResult) -> Iterator[str]:
    for client, quotas in result.outcomes:
        for quota in quotas:
            for warning in quota.warnings:
                if warning != NOTHING_MATCHED:
                    yield f"warning: {client}: {quota.key.name}: {warning}"


def _client(client: QuotaClient, rows: tuple[QuotaRow, ...]) -> ClientRow:
    parts = dict(client.parts)
    user, client_id, ip = (name if isinstance(name := parts.get(kind), str) else None for kind in (USER, CLIENT_ID, IP))
    any_other = tuple(kind.replace("-", "_") for kind, name in client.parts if isinstance(name, Other))
    return ClientRow(NamedClient(user, client_id, ip, any_other), rows)
