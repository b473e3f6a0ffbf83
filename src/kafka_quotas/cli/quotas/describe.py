"""`kafka-quotas describe`: what is stored, or with --effective what really applies."""

import sys
from collections.abc import Sequence
from contextlib import closing

import typer

from kafka_quotas.cli.framework.entity_command import ORDER, EntityCommand
from kafka_quotas.cli.framework.store_choice import StoreChoice, choose_store
from kafka_quotas.cli.options.entity import EntityOptions, filter_of, selected_parts
from kafka_quotas.cli.options.stores import (
    BootstrapServer,
    Broker,
    BrokerDefault,
    Client,
    ClientAny,
    ClientDefault,
    ClientName,
    CommandConfig,
    ContextName,
    EntityDefault,
    EntityType,
    Ip,
    IpAny,
    IpDefault,
    ListingView,
    StoreUrl,
    Strict,
    User,
    UserAny,
    UserDefault,
    Zookeeper,
)
from kafka_quotas.cli.options.usage import MetricNamesFile, Prometheus, UsageControl, UsageOptions, read_from
from kafka_quotas.cli.output.render import Column, Listing, Table, print_listing, write
from kafka_quotas.cli.output.static_note import print_static_note
from kafka_quotas.cli.output.values import in_words, plain, record_kinds
from kafka_quotas.cli.output.view import TABLE_VIEW, View
from kafka_quotas.cli.quotas.effective_options import (
    AllClients,
    Brokers,
    ClientsFile,
    Effective,
    EffectiveOptions,
    History,
    NoClientId,
    Topic,
    WithUsage,
    clients_asked,
    parse_history,
)
from kafka_quotas.cli.quotas.effective_view import print_effective
from kafka_quotas.commands.quotas.cluster import look_at_cluster
from kafka_quotas.commands.quotas.describe import DescribeResult
from kafka_quotas.commands.quotas.describe import describe as run_describe
from kafka_quotas.commands.quotas.describe import effective as run_effective
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.entity import Entity

app = typer.Typer(add_completion=False)


@app.command(cls=EntityCommand)
def describe(
    ctx: typer.Context,
    *,
    user: User = None,
    client: Client = None,
    ip: Ip = None,
    user_default: UserDefault = False,
    client_default: ClientDefault = False,
    ip_default: IpDefault = False,
    user_any: UserAny = False,
    client_any: ClientAny = False,
    ip_any: IpAny = False,
    broker: Broker = None,
    broker_default: BrokerDefault = False,
    entity_type: EntityType = None,
    entity_name: ClientName = None,
    entity_default: EntityDefault = 0,  # noqa: ARG001 - its place among the options counts, see ORDER
    strict: Strict = False,
    effective: Effective = False,
    no_client_id: NoClientId = False,
    all_clients: AllClients = False,
    clients: ClientsFile = None,
    history: History = None,
    brokers: Brokers = None,
    topic: Topic = None,
    with_usage: WithUsage = False,
    control: UsageControl = None,
    prometheus: Prometheus = None,
    metric_names: MetricNamesFile = None,
    store: StoreUrl = None,
    context: ContextName = None,
    bootstrap_server: BootstrapServer = None,
    zookeeper: Zookeeper = None,
    command_config: CommandConfig = None,
    output: ListingView = TABLE_VIEW,
) -> None:
    """Show stored quotas, or with --effective which quotas a client really gets.

    Without an entity everything is shown. What --output json prints of stored quotas is a list of entities that can be
    read back. Limits hold per broker, not per cluster.
    """
    named = EntityOptions(
        user=user,
        client=client,
        ip=ip,
        user_default=user_default,
        client_default=client_default,
        ip_default=ip_default,
        user_any=user_any,
        client_any=client_any,
        ip_any=ip_any,
        topic=None if effective else topic,
        broker=broker,
        broker_default=broker_default,
        entity_types=entity_type or (),
        entity_names=entity_name or (),
        order=ctx.meta[ORDER],
    )
    asked = EffectiveOptions(
        no_client_id=no_client_id,
        all_clients=all_clients,
        clients_file=clients,
        history=history or (),
        brokers=brokers,
        topic=topic if effective else None,
        with_usage=with_usage,
        usage=UsageOptions(control=control, prometheus=prometheus or (), metric_names=metric_names),
    )
    choice = choose_store(
        store=store,
        bootstrap_server=bootstrap_server,
        zookeeper=zookeeper,
        command_config=command_config,
        context=context,
    )
    if effective:
        _effective(named, asked, choice, output, strict=strict)
    else:
        _stored(named, asked, choice, output, strict=strict)


def _stored(named: EntityOptions, asked: EffectiveOptions, choice: StoreChoice, output: View, *, strict: bool) -> None:
    """Print the stored quotas that match."""
    if asked != EffectiveOptions():
        raise UsageError(f"{', '.join(asked.given())}: only with --effective", hint="add --effective")
    quota_filter = filter_of(selected_parts(named), strict=strict)
    with closing(choice.open()) as opened:
        result = run_describe(opened, quota_filter=quota_filter)
    print_listing(_listing(result), output)
    if not result.entries:
        write(f"note: no stored quota matches in {result.store_url}", sys.stderr)
        print_static_note(result.store_url)


def _effective(
    named: EntityOptions, asked: EffectiveOptions, choice: StoreChoice, output: View, *, strict: bool
) -> None:
    """Print the effective quotas of the named clients."""
    if strict:
        raise UsageError("--strict and --effective exclude each other", hint="a client is subject to every level")
    if asked.usage.given and not asked.with_usage:
        raise UsageError(f"{asked.usage.given[0]} goes with --with-usage")
    clients = clients_asked(named, asked)
    history = parse_history(asked.history)
    usages = read_from(asked.usage).usages if asked.with_usage else None
    with closing(choice.open()) as opened:
        found = look_at_cluster(opened.url, settings=choice.settings(), brokers=asked.brokers, topic=asked.topic)
        result = run_effective(
            opened, clients=clients, history=history, cluster=found.view, warnings=found.warnings, usages=usages
        )
    print_effective(result, output)
    print_static_note(result.store_url)


def _listing(result: DescribeResult) -> Listing:
    quotas = [(entry.entity, key, value) for entry in result.entries for key, value in sorted(entry.quotas.items())]
    kinds = record_kinds(entry.entity for entry in result.entries)
    return Listing(
        noun="quotas",
        items="entries",
        data={
            "entries": [
                {
                    "entity": entry.entity.to_mapping(),
                    "quotas": {key: plain(key, value) for key, value in sorted(entry.quotas.items())},
                }
                for entry in result.entries
            ]
        },
        table=Table(
            columns=(
                Column(title="entity"),
                Column(title="key", whole=True),
                Column(title="value", figures=True, whole=True),
                Column(title="in words", figures=True, whole=True),
            ),
            rows=[(str(entity), key, plain(key, value), in_words(key, value)) for entity, key, value in quotas],
        ),
        records=Table(
            columns=[Column(title=title) for title in (*kinds, "defaults", "key", "value")],
            rows=[(*_named(entity, kinds), _defaults(entity), key, plain(key, value)) for entity, key, value in quotas],
        ),
    )


def _named(entity: Entity, kinds: Sequence[str]) -> tuple[str | None, ...]:
    """Return the entity's name of each type.

    None means that the entity has no part of the type, or its default.
    """
    parts = entity.to_mapping()
    return tuple(parts.get(entity_type) for entity_type in kinds)


def _defaults(entity: Entity) -> str:
    """Return the types of which the entity has the default.

    In CSV an empty name alone is ambiguous.
    """
    return " ".join(kind for kind, name in entity.parts if name is None)
