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
from kafka_quotas.commands.quotas.describe import ClientOutcome, ClusterView, EffectiveResult
from kafka_quotas.core.described import Described
from kafka_quotas.core.model.quota_key import CONTROLLER_MUTATION_RATE, QuotaKey
from kafka_quotas.core.model.value_format import format_quota, format_rate, format_share, format_throttle_time
from kafka_quotas.core.resolution.effective import NOTHING_MATCHED, EffectiveQuota, Other
from kafka_quotas.core.resolution.usage import BrokerUsage, Usage, is_held_back, share_used, usage_under

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
        """Where the limit holds."""
        return scope(self.quota.key)

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


class ClientNames(NamedTuple):
    """The names of a client, None for a part without one."""

    user: str | None
    client_id: str | None
    ip: str | None
    any_other: tuple[str, ...]


class ClientRow(NamedTuple):
    """A client and its effective quotas."""

    client: Annotated[ClientNames, Described(text=_ABOUT_CLIENT, prefix="")]
    quotas: tuple[QuotaRow, ...]


def print_effective(result: EffectiveResult, output: View) -> None:
    """Print the effective quotas, with warnings and notes on standard error."""
    for warning in result.warnings:
        write(f"warning: {warning}", sys.stderr)
    if output.is_table and not (output.columns or output.limit) and len(result.outcomes) == 1:
        _print_one(result.outcomes[0], result.cluster, result.usages)
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


def _print_one(outcome: ClientOutcome, cluster: ClusterView | None, usages: Usages) -> None:
    table = Table(
        columns=columns("key!, limit>!, in words>!, level!, set on"),
        rows=[[quota.key.name, *_cells(quota)] for quota in outcome.quotas],
        caption=f"What applies to {outcome.client}",
    )
    print_table(table, sys.stdout)
    for quota in outcome.quotas:
        details = [*_details(quota, cluster), *_seen(quota, usages)]
        if details:
            write("\n" + "\n".join(folded(line) for line in (f"{quota.key.name}:", *details)), sys.stdout)
    unmatched = [quota.key.name for quota in outcome.quotas if NOTHING_MATCHED in quota.warnings]
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


def _details(quota: EffectiveQuota, cluster: ClusterView | None) -> Iterator[str]:
    if quota.limit is not None:
        yield f"  {scope(quota.key)}; bucket used by {quota.shared_with}"
        yield from (f"  {line}" for line in _arithmetic(quota, cluster))
    for lost in quota.overridden:
        yield f"  overrides level {lost.level}, {lost.entity}: {format_quota(quota.key.name, lost.limit)}"
    yield from (f"  warning: {warning}" for warning in quota.warnings if warning != NOTHING_MATCHED)


def _seen(quota: EffectiveQuota, usages: Usages) -> Iterator[str]:
    found = () if usages is None else usage_under(quota, usages)
    for usage in found:
        limit = quota.limit if usage.limit is None else usage.limit
        share = format_share(share_used(usage.observed, limit))
        throttled = f", throttled for {format_throttle_time(usage.throttle_ms)}" if is_held_back(usage, limit) else ""
        used = f", {share} used" if share else ""
        yield f"  at broker {usage.broker}: {format_rate(usage.key, usage.observed)}{used}{throttled}"
    if usages is not None and not found:
        yield "  no rates were seen"


def scope(key: QuotaKey) -> str:
    """Return where a limit of this key holds.

    Each broker enforces its limits by itself. All mutations pass the active controller.
    """
    return _SCOPES[key == CONTROLLER_MUTATION_RATE]


def _arithmetic(quota: EffectiveQuota, cluster: ClusterView | None) -> Iterator[str]:
    if cluster is None:
        return
    total, of_topic = cluster.total(quota.key, quota.limit), cluster.topic_total(quota.key, quota.limit)
    if total is not None:
        line = f"x {cluster.brokers} brokers = up to {format_quota(quota.key.name, total)}"
        if of_topic is not None:
            leads = f"topic {cluster.topic} leads on {cluster.leading_brokers}"
            line += f"; {leads}: {format_quota(quota.key.name, of_topic)}"
        yield line


def _listing(result: EffectiveResult) -> Listing:
    return Listing(
        noun="effective",
        data={**document_of(result), "clients": [document_of(_client(outcome, result)) for outcome in result.outcomes]},
        table=_many(result),
        items="clients",
        apart=True,
    )


def _many(result: EffectiveResult) -> Table:
    rows: list[list[Cell]] = []
    for outcome in result.outcomes:
        limited = [quota for quota in outcome.quotas if quota.limit is not None]
        for number, quota in enumerate(limited):
            _, words, level, entity = _cells(quota)
            total = _total(quota, result.cluster)
            rows.append(["" if number else str(outcome.client), quota.key.name, words, *total, level, entity])
        if not limited:
            empty = [""] * len(_total_titles(result.cluster))
            rows.append([str(outcome.client), "(any)", "unlimited", *empty, "", ""])
    totals = "".join(f"{title}>!, " for title in _total_titles(result.cluster))
    return Table(columns=columns(f"client, key!, limit>!, {totals}level!, set on"), rows=rows)


def _total_titles(cluster: ClusterView | None) -> list[str]:
    return [] if cluster is None else [f"x {cluster.brokers} brokers"]


def _total(quota: EffectiveQuota, cluster: ClusterView | None) -> list[str]:
    """Return the cell of a limit's total on the cluster, none without a cluster."""
    if cluster is None:
        return []
    total = cluster.total(quota.key, quota.limit)
    return ["" if total is None else format_quota(quota.key.name, total)]


def _odd(result: EffectiveResult) -> Iterator[str]:
    """Yield the warnings about single clients, without the unlimited ones, which the table shows."""
    for outcome in result.outcomes:
        for quota in outcome.quotas:
            for warning in quota.warnings:
                if warning != NOTHING_MATCHED:
                    yield f"warning: {outcome.client}: {quota.key.name}: {warning}"


def _client(outcome: ClientOutcome, result: EffectiveResult) -> ClientRow:
    client = outcome.client
    any_other = tuple(kind.replace("-", "_") for kind, name in client.parts if isinstance(name, Other))
    names = ClientNames(_text(client.user), _text(client.client_id), _text(client.ip), any_other)
    return ClientRow(names, tuple(QuotaRow(quota, result.cluster, result.usages) for quota in outcome.quotas))


def _text(name: str | Other | None) -> str | None:
    return name if isinstance(name, str) else None
