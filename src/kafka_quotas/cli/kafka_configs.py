"""`kafka-quotas kafka-configs`: arguments, lines and exit codes of Kafka's own program, for quotas.

A failure is two lines, the second from a Java exception. Scripts look for the names of the exceptions, so they are the
original's, without its stack trace. The warnings are about effects that are probably not intended and on which the
original is silent.

**Source:** `ConfigCommand.main`, `alterConfig`, `describeConfig` and `describeConfigWithZk` (Kafka 3.9 and 4.3),
`org.apache.kafka.common.protocol.Errors`.
"""

import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from kafka_quotas.cli.framework.commands import RUNNING, PassThroughCommand, as_command
from kafka_quotas.cli.framework.help_page import CLOSED_PIPE_MEANING, DONE_MEANING, INTERRUPTED_MEANING
from kafka_quotas.cli.options.stores import recorder_for
from kafka_quotas.cli.output.render import warn, write
from kafka_quotas.commands.kafka_configs.command import (
    NOT_SUPPORTED,
    Action,
    KafkaConfigsCommand,
    checked_options,
    command_of,
    describe_lines,
)
from kafka_quotas.commands.kafka_configs.options import (
    DEFAULT_FLAGS,
    ILLEGAL_ARGUMENT,
    NAMED_FLAGS,
    OPTIONS,
    QUOTA_TYPES,
    USAGE,
    USERS,
    KafkaConfigsError,
    usage_text,
)
from kafka_quotas.core.changes.plan import PlannedChange
from kafka_quotas.core.changes.validation import SCRAM_MECHANISMS, as_hash_map
from kafka_quotas.core.errors import InvalidQuotaError, KafkaQuotasError, StoreUnreachableError, UsageError
from kafka_quotas.core.formats.documents import read_properties
from kafka_quotas.core.java import parse_double
from kafka_quotas.stores import BrokerAnswerError, LostAnswerError, StoreSettings, name_resolves, parse_store_url

if TYPE_CHECKING:
    from kafka_quotas.stores import KafkaRawQuotas, ZooKeeperUserConfigs

DESCRIBE_TIMEOUT_S = 30.0
ALTER_TIMEOUT_S = 60.0
FUTURE = "java.util.concurrent.ExecutionException: "
"""The prefix of an error from a broker's response or a missing one."""
OURS = ""
"""The error class of errors of this program alone, reported without a class."""
TIMED_OUT = "REQUEST_TIMED_OUT"
ZOOKEEPER_TIMED_OUT = "kafka.zookeeper.ZooKeeperClientTimeoutException"

_PACKAGE = "org.apache.kafka.common.errors."
_ODD_CLASSES = {
    "CLUSTER_AUTHORIZATION_FAILED": "ClusterAuthorizationException",
    "INVALID_CONFIG": "InvalidConfigurationException",
    "REQUEST_TIMED_OUT": "TimeoutException",
    "SASL_AUTHENTICATION_FAILED": "SaslAuthenticationException",
    "SSL_AUTHENTICATION_FAILED": "SslAuthenticationException",
    "UNKNOWN_SERVER_ERROR": "UnknownServerException",
}
_TEXT_ALONE = (
    NOT_SUPPORTED,
    ILLEGAL_ARGUMENT,
    "java.lang.NumberFormatException",
    f"{_PACKAGE}InvalidConfigurationException",
)
DEPRECATION_LINES = (
    "Warning: --zookeeper is deprecated and will be removed in a future version of Kafka.",
    "Use --bootstrap-server instead to specify a broker to connect to.",
)
"""What the original prints before it looks at ZooKeeper."""
_CREDENTIALS_NOTE = "SCRAM credentials are no quotas and are not listed here; Kafka's own kafka-configs lists them"
_PROPERTIES_SLOTS = 16  # those of a new java.util.Properties
_SERVER = re.compile(r"(?:[0-9a-zA-Z\-%._]*://)?(\[?[0-9a-zA-Z\-%._:]*\]?:[0-9]+)", re.ASCII)
"""**Source:** `org.apache.kafka.common.utils.Utils.getHost` (4.3)."""


def open_brokers(command: KafkaConfigsCommand) -> "KafkaRawQuotas":
    """Open the brokers of `--bootstrap-server` with the properties of `--command-config`."""
    from kafka_quotas.stores import KafkaRawQuotas  # noqa: PLC0415 - only a Kafka store needs it

    servers = command.options.value("bootstrap-server")
    if servers is None:
        raise _broker_failure(
            "UNSUPPORTED_ENDPOINT_TYPE",
            "This Admin API is not yet supported when communicating directly with the controller quorum.",
            hint="ask the brokers: --bootstrap-server HOST:PORT",
        )
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
        message, error_class = error.message, OURS
        match error.__cause__:
            case FileNotFoundError():
                message, error_class = file, "java.nio.file.NoSuchFileException"
            case PermissionError():
                message, error_class = file, "java.nio.file.AccessDeniedException"
            case IsADirectoryError():
                message, error_class = "Is a directory", "java.io.IOException"
        raise KafkaConfigsError(message, error_class=error_class, hint=error.hint) from error


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
    for warning in _warnings(command):
        warn(warning)
    through_zookeeper = options.has("zookeeper")
    try:
        lines = _in_zookeeper(command) if through_zookeeper else _at_brokers(command)
    except KafkaConfigsError:
        raise
    except KafkaQuotasError as error:
        raise _as_the_original(error, through_zookeeper=through_zookeeper) from error
    for line in lines:
        write(line, sys.stdout)
    if command.action is Action.DESCRIBE and (through_zookeeper or command.describes_scram):
        write(f"note: {_CREDENTIALS_NOTE}", sys.stderr)


def _at_brokers(command: KafkaConfigsCommand) -> Sequence[str]:
    if command.action is Action.ALTER and not command.added and not command.deleted:
        return [command.completed_line]  # `--add-config ,`: nothing to ask anybody
    with closing(open_brokers(command)) as brokers:
        entries = brokers.describe(command.quota_filter)
        if command.action is Action.DESCRIBE:
            return describe_lines((entry.entity, entry.quotas) for entry in entries)
        stored = {entry.entity: entry.quotas for entry in entries}.get(command.entity, {})
        changes = command.changes(stored)
        made = tuple(
            PlannedChange(entity=command.entity, key=key, old=stored.get(key), new=new)
            for key, new in dict(changes).items()
        )
        recorder = recorder_for("kafka-configs", reason=None)
        try:
            brokers.alter(command.entity, changes)
        except LostAnswerError:
            recorder.record(brokers.url, made, confirmed=False)
            raise
        recorder.record(brokers.url, made, confirmed=True)
    return [command.completed_line]


def _in_zookeeper(command: KafkaConfigsCommand) -> Sequence[str]:
    if command.action is Action.ALTER:  # quotas and credentials were refused before, so there is nothing to write
        return [command.completed_line]
    with closing(open_zookeeper(command)) as configs:
        if command.names:
            name = command.names[0] or None
            found = [(name, configs.of_user(name))]
        else:
            found = [(name, config) for name, config in configs.of_all_users() if _without_credentials(config)]
    return list(_user_lines(found))


def _warnings(command: KafkaConfigsCommand) -> Iterator[str]:
    """Yield the warnings to print before an alteration, each in one line, none for other actions."""
    if command.action is not Action.ALTER:
        return
    for option in ("entity-name", *NAMED_FLAGS):
        for name in command.options.values(option):
            if not name:
                yield f"--{option} is empty, so it means the default; is the shell variable behind it set?"
            elif name.startswith("--"):
                yield f"--{option} takes {name} as the name; is the shell variable in between set?"
    for key, text in command.added.items():
        with suppress(InvalidQuotaError):  # refused in its turn, in the words of the original
            if math.isnan(parse_double(text)):
                yield f"{key}=NaN is taken by KRaft brokers and limits nothing in a way anybody could rely on"
    if command.options.ignored:
        yield f"no option, so passed over: {' '.join(command.options.ignored)}"


def _user_lines(found: list[tuple[str | None, Mapping[str, str]]]) -> Iterator[str]:
    for name, config in found:
        user = "default user-principal" if name is None else f"user-principal '{name}'"
        shown = as_hash_map(_without_credentials(config).items(), _PROPERTIES_SLOTS)
        yield f"Configs for {user} are " + ",".join(f"{key}={value}" for key, value in shown.items())


def _without_credentials(config: Mapping[str, str]) -> Mapping[str, str]:
    return {key: value for key, value in config.items() if key not in SCRAM_MECHANISMS}


def _as_the_original(error: KafkaQuotasError, *, through_zookeeper: bool) -> KafkaConfigsError:
    if isinstance(error, BrokerAnswerError):
        return _broker_failure(error.code, error.message, hint=error.hint)
    if isinstance(error, StoreUnreachableError):
        if not through_zookeeper:
            return _broker_failure(TIMED_OUT, error.message, hint=error.hint)
        return KafkaConfigsError(error.message, error_class=ZOOKEEPER_TIMED_OUT, hint=error.hint)
    return KafkaConfigsError(error.message, error_class=OURS, hint=error.hint)


def _broker_failure(code: str, message: str, *, hint: str | None = None) -> KafkaConfigsError:
    """Return the error for a broker's error code, or for `TIMED_OUT` and the like."""
    simple = _ODD_CLASSES.get(code) or "".join(word.capitalize() for word in code.split("_")) + "Exception"
    return KafkaConfigsError(message, error_class=f"{FUTURE}{_PACKAGE}{simple}", hint=hint)


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
    lines = [error.message]
    if isinstance(error, KafkaConfigsError):
        if error.error_class == USAGE:
            lines += usage_text().splitlines()
        elif not error.error_class.startswith("joptsimple.") and error.error_class not in _TEXT_ALONE:
            reason = f"{error.error_class}: {error.message}" if error.error_class else error.message
            lines = [f"Error while executing config command with args '{' '.join(arguments)}'", reason]
    return [*lines, f"hint: {error.hint}"] if error.hint else lines
