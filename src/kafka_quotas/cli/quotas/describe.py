"""`kafka-quotas describe`: what is stored, or with --effective what really applies."""

import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Annotated

import typer

from kafka_quotas.cli.framework.commands import ORDER, EntityCommand
from kafka_quotas.cli.framework.option_groups import Without
from kafka_quotas.cli.framework.store_choice import StoreChoice, print_static_note
from kafka_quotas.cli.options.entity import EntityOptions, selected_filter
from kafka_quotas.cli.options.stores import ListingView, StoreOptions, store_for
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
from kafka_quotas.cli.quotas.effective_options import EffectiveOptions, clients_asked, parse_history
from kafka_quotas.cli.quotas.effective_view import print_effective
from kafka_quotas.commands.quotas.cluster import look_at_cluster
from kafka_quotas.commands.quotas.describe import DescribeResult
from kafka_quotas.commands.quotas.describe import describe as run_describe
from kafka_quotas.commands.quotas.describe import effective as run_effective
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.value_format import format_count, format_quota

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
        result = run_describe(opened, quota_filter=quota_filter)
    listing = _listing(result)
    print_listing(listing, output)
    if output.is_table and not output.limit and len(listing.table.rows) > DEFAULT_ROWS:
        quotas = format_count(len(listing.table.rows), "quota", separator=",")
        write(f"note: {quotas} of {format_count(len(result.entries), 'entity', separator=',')}", sys.stderr)
    if not result.entries:
        write(f"note: no stored quota matches in {result.store_url}", sys.stderr)
        if any("*" in (name or "") for name in (named.user, named.client, named.ip)):
            write("hint: names are exact here; export --selector takes patterns", sys.stderr)
        print_static_note(result.store_url)


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
        found = look_at_cluster(opened, settings=choice.settings(), brokers=asked.brokers, topic=asked.topic)
        result = run_effective(
            opened, clients=clients, history=history, cluster=found.view, warnings=found.warnings, usages=usages
        )
    print_effective(result, output)
    print_static_note(result.store_url)


def _listing(result: DescribeResult) -> Listing:
    quotas = [(entry.entity, key, value) for entry in result.entries for key, value in sorted(entry.quotas.items())]
    return Listing(
        noun="quotas",
        items="entries",
        data={
            "entries": documents_of(
                [replace(each, quotas=dict(sorted(each.quotas.items()))) for each in result.entries]
            )
        },
        table=Table(
            columns=columns("entity, key!, value>!, in words>!"),
            rows=[
                (str(entity), key, plain_value(key, value), format_quota(key, value)) for entity, key, value in quotas
            ],
        ),
    )
