"""`kafka-quotas kafka-configs`: arguments, lines and exit codes of Kafka's own program, for quotas."""

import re
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from kafka_quotas.cli.framework.commands import RUNNING, PassThroughCommand, as_command
from kafka_quotas.cli.framework.help_page import CLOSED_PIPE_MEANING, DONE_MEANING, INTERRUPTED_MEANING
from kafka_quotas.cli.options.stores import recorder_for
from kafka_quotas.cli.output.render import write
from kafka_quotas.commands.kafka_configs.command import Action, KafkaConfigsCommand, checked_options, command_of
from kafka_quotas.commands.kafka_configs.options import (
    DEFAULT_FLAGS,
    NAMED_FLAGS,
    OPTIONS,
    QUOTA_TYPES,
    USERS,
    KafkaConfigsError,
)
from kafka_quotas.commands.kafka_configs.run import (
    DEPRECATION_LINES,
    OURS,
    KafkaConfigsResult,
    controllers_not_asked,
    error_lines,
    run_kafka_configs,
    unreadable_file,
    warnings,
)
from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.core.formats.documents import read_properties
from kafka_quotas.stores import StoreSettings, name_resolves, parse_store_url

if TYPE_CHECKING:
    from kafka_quotas.stores import KafkaRawQuotas, ZooKeeperUserConfigs

DESCRIBE_TIMEOUT_S = 30.0
ALTER_TIMEOUT_S = 60.0
_SERVER = re.compile(r"(?:[0-9a-zA-Z\-%._]*://)?(\[?[0-9a-zA-Z\-%._:]*\]?:[0-9]+)", re.ASCII)
"""**Source:** `org.apache.kafka.common.utils.Utils.getHost` (4.3)."""


def open_brokers(command: KafkaConfigsCommand) -> "KafkaRawQuotas":
    """Open the brokers of `--bootstrap-server` with the properties of `--command-config`."""
    from kafka_quotas.stores import KafkaRawQuotas  # noqa: PLC0415 - only a Kafka store needs it

    servers = command.options.value("bootstrap-server")
    if servers is None:
        raise controllers_not_asked()
    address = ",".join(_server(server.strip()) for server in servers.split(",") if server.strip())
    if not address:
        raise KafkaConfigsError("--bootstrap-server is empty", error_class=OURS)
    file = command.options.value("command-config")
    settings = StoreSettings(
        client_properties=_properties(file) if file is not None else {},
        timeout_s=ALTER_TIMEOUT_S if command.action is Action.ALTER else DESCRIBE_TIMEOUT_S,
    )
    return KafkaRawQuotas(parse_store_url(f"kafka://{address}"), settings=settings)


def open_zookeeper(command: KafkaConfigsCommand) -> "ZooKeeperUserConfigs":
    """Open the ZooKeeper of `--zookeeper` with the properties of `--zk-tls-config-file`."""
    from kafka_quotas.stores import ZooKeeperUserConfigs  # noqa: PLC0415 - loads kazoo

    address = parse_store_url(f"zk://{command.options.value('zookeeper')}")
    file = command.options.value("zk-tls-config-file")
    properties = _properties(file) if file is not None else {}
    return ZooKeeperUserConfigs(address, settings=StoreSettings(client_properties=properties))


def _properties(file: str) -> dict[str, str]:
    try:
        return read_properties(Path(file))
    except UsageError as error:
        raise unreadable_file(file, error) from error


def _server(text: str) -> str:
    match = _SERVER.fullmatch(text)
    if match is None:
        raise KafkaConfigsError(
            "Failed to create new KafkaAdminClient",
            error_class="org.apache.kafka.common.KafkaException",
            hint=f"invalid url in bootstrap.servers: {text}; it is host:port",
        )
    return match[1]


FOLLOWED_KAFKA = "4.3.1"
"""The release whose program this is held against; `--version` names it first, as scripts look for Kafka's version."""

_KINDS = {**NAMED_FLAGS, **DEFAULT_FLAGS}


@as_command(
    PassThroughCommand,
    # All others are about entities without quotas, and are parsed only to be refused as the original does.
    documented={name: about for name, about in OPTIONS.items() if _KINDS.get(name, USERS) in QUOTA_TYPES},
    exit_codes=(DONE_MEANING, ("1", "Anything else."), INTERRUPTED_MEANING, CLOSED_PIPE_MEANING),
)
def kafka_configs(ctx: typer.Context) -> None:
    """Set and show quotas as Kafka's own kafka-configs does.

    Arguments, pairing rules, values, printed lines, streams and exit codes (1 for every error) are those of the
    original, for users, clients and ips. Where the original is dangerous a warning is printed on standard error. SCRAM
    credentials and other types of entities are refused. For validation, units and other stores use kafka-quotas alter.
    """
    session = RUNNING.get(None)
    if session is not None:
        session.error_lines = partial(_error_lines, arguments=tuple(ctx.args))
    _refuse_broken_text(ctx.args)
    options = checked_options(ctx.args, resolves=name_resolves)
    if options.has("zookeeper"):
        write("\n".join(DEPRECATION_LINES), sys.stdout)
    command = command_of(options, load_properties=_properties)
    if command.action is Action.VERSION:
        write(_version_line(), sys.stdout)
        return
    for warning in warnings(command):
        write(f"warning: {warning}", sys.stderr)
    result = run_kafka_configs(
        command,
        open_brokers=lambda: open_brokers(command),
        open_zookeeper=lambda: open_zookeeper(command),
        unconfirmed=partial(_record, confirmed=False),
    )
    if result.made:
        _record(result, confirmed=True)
    for line in result.lines:
        write(line, sys.stdout)
    if result.note:
        write(f"note: {result.note}", sys.stderr)


def _record(result: KafkaConfigsResult, *, confirmed: bool) -> None:
    recorder_for("kafka-configs", reason=None).record(result.store_url, result.made, confirmed=confirmed)


def _refuse_broken_text(arguments: Sequence[str]) -> None:
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError as error:
            raise KafkaConfigsError(f"not valid UTF-8: {argument!a}", error_class=OURS) from error


def _version_line() -> str:
    from importlib.metadata import version  # noqa: PLC0415 - only --version pays for it

    return f"{FOLLOWED_KAFKA} (kafka-quotas {version('kafka-quotas')})"


def _error_lines(error: KafkaQuotasError, *, arguments: Sequence[str]) -> list[str]:
    lines = error_lines(error, arguments) if isinstance(error, KafkaConfigsError) else [error.message]
    return [*lines, f"hint: {error.hint}"] if error.hint else lines
