"""One `kafka-configs` command, carried out at brokers or ZooKeeper, with the original's output and messages.

A failure is two lines, the second from a Java exception. Scripts look for the names of the exceptions, so they are the
original's, without its stack trace. The warnings are about effects that are probably not intended and on which the
original is silent.

**Source:** `ConfigCommand.main`, `alterConfig`, `describeConfig` and `describeConfigWithZk` (Kafka 3.9 and 4.3),
`org.apache.kafka.common.protocol.Errors`.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka_quotas.commands.kafka_configs.command import NOT_SUPPORTED, Action, KafkaConfigsCommand, describe_lines
from kafka_quotas.commands.kafka_configs.options import (
    ILLEGAL_ARGUMENT,
    NAMED_FLAGS,
    USAGE,
    KafkaConfigsError,
    usage_text,
)
from kafka_quotas.core.changes.plan import PlannedChange
from kafka_quotas.core.changes.validation import SCRAM_MECHANISMS, as_hash_map
from kafka_quotas.core.errors import InvalidQuotaError, KafkaQuotasError, StoreUnreachableError, UsageError
from kafka_quotas.core.java import parse_double
from kafka_quotas.stores import BrokerAnswerError, LostAnswerError

if TYPE_CHECKING:
    from kafka_quotas.stores import KafkaRawQuotas, ZooKeeperUserConfigs

_NAME_OPTIONS = ("entity-name", *NAMED_FLAGS)


def warnings(command: KafkaConfigsCommand) -> Iterator[str]:
    """Yield the warnings to print before an alteration, each in one line, none for other actions."""
    if command.action is not Action.ALTER:
        return
    for option in _NAME_OPTIONS:
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
    USAGE,
    NOT_SUPPORTED,
    ILLEGAL_ARGUMENT,
    "java.lang.NumberFormatException",
    f"{_PACKAGE}InvalidConfigurationException",
)


def _broker_failure(code: str, message: str, *, hint: str | None = None) -> KafkaConfigsError:
    """Return the error for a broker's error code, or for `TIMED_OUT` and the like."""
    simple = _ODD_CLASSES.get(code) or "".join(word.capitalize() for word in code.split("_")) + "Exception"
    return KafkaConfigsError(message, error_class=f"{FUTURE}{_PACKAGE}{simple}", hint=hint)


def controllers_not_asked() -> KafkaConfigsError:
    """Return the error of every quota command with `--bootstrap-controller`, as in Kafka 4.3."""
    return _broker_failure(
        "UNSUPPORTED_ENDPOINT_TYPE",
        "This Admin API is not yet supported when communicating directly with the controller quorum.",
        hint="ask the brokers: --bootstrap-server HOST:PORT",
    )


def unreadable_file(path: str, error: UsageError) -> KafkaConfigsError:
    """Return the error for an unreadable file of properties, from a system error."""
    cause = error.__cause__
    if isinstance(cause, FileNotFoundError):
        return KafkaConfigsError(path, error_class="java.nio.file.NoSuchFileException", hint=error.hint)
    if isinstance(cause, PermissionError):
        return KafkaConfigsError(path, error_class="java.nio.file.AccessDeniedException", hint=error.hint)
    if isinstance(cause, IsADirectoryError):
        return KafkaConfigsError("Is a directory", error_class="java.io.IOException", hint=error.hint)
    return KafkaConfigsError(error.message, error_class=OURS, hint=error.hint)


def error_lines(error: KafkaConfigsError, arguments: Sequence[str]) -> list[str]:
    """Return the lines on standard error for an error of a command with these arguments."""
    if error.error_class.startswith("joptsimple.") or error.error_class in _TEXT_ALONE:
        return [error.message, *(usage_text().splitlines() if error.error_class == USAGE else ())]
    reason = f"{error.error_class}: {error.message}" if error.error_class else error.message
    return [f"Error while executing config command with args '{' '.join(arguments)}'", reason]


DEPRECATION_LINES = (
    "Warning: --zookeeper is deprecated and will be removed in a future version of Kafka.",
    "Use --bootstrap-server instead to specify a broker to connect to.",
)
"""What the original prints before it looks at ZooKeeper."""
_CREDENTIALS_NOTE = "SCRAM credentials are no quotas and are not listed here; Kafka's own kafka-configs lists them"
_PROPERTIES_SLOTS = 16  # those of a new java.util.Properties


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaConfigsResult:
    """The lines that a command prints, and the changes that it made."""

    lines: tuple[str, ...]
    note: str | None = None
    """What the output leaves out that the original prints."""
    made: tuple[PlannedChange, ...] = ()
    store_url: str = ""


def run_kafka_configs(
    command: KafkaConfigsCommand,
    *,
    open_brokers: Callable[[], "KafkaRawQuotas"],
    open_zookeeper: Callable[[], "ZooKeeperUserConfigs"],
    unconfirmed: Callable[[KafkaConfigsResult], object] = lambda _: None,
) -> KafkaConfigsResult:
    """Carry out the command at the one store that it needs, and return what it prints.

    Where the brokers' answer was lost, `unconfirmed` is called with what was sent before the error is raised.
    """
    through_zookeeper = command.options.has("zookeeper")
    try:
        if through_zookeeper:
            return _in_zookeeper(command, open_zookeeper)
        return _at_brokers(command, open_brokers, unconfirmed)
    except KafkaConfigsError:
        raise
    except KafkaQuotasError as error:
        raise _as_the_original(error, through_zookeeper=through_zookeeper) from error


def _at_brokers(
    command: KafkaConfigsCommand,
    open_brokers: Callable[[], "KafkaRawQuotas"],
    unconfirmed: Callable[[KafkaConfigsResult], object],
) -> KafkaConfigsResult:
    if command.action is Action.ALTER and not command.added and not command.deleted:
        return KafkaConfigsResult(lines=(command.completed_line,))  # `--add-config ,`: nothing to ask anybody
    with closing(open_brokers()) as brokers:
        entries = brokers.describe(command.quota_filter)
        if command.action is Action.DESCRIBE:
            lines = describe_lines((entry.entity, entry.quotas) for entry in entries)
            note = _CREDENTIALS_NOTE if command.describes_scram else None
            return KafkaConfigsResult(lines=tuple(lines), note=note)
        stored = {entry.entity: entry.quotas for entry in entries}.get(command.entity, {})
        changes = command.changes(stored)
        made = tuple(
            PlannedChange(entity=command.entity, key=key, old=stored.get(key), new=new)
            for key, new in dict(changes).items()
        )
        result = KafkaConfigsResult(lines=(command.completed_line,), made=made, store_url=brokers.url)
        try:
            brokers.alter(command.entity, changes)
        except LostAnswerError:
            unconfirmed(result)
            raise
        return result


def _in_zookeeper(
    command: KafkaConfigsCommand, open_zookeeper: Callable[[], "ZooKeeperUserConfigs"]
) -> KafkaConfigsResult:
    if command.action is Action.ALTER:  # quotas and credentials were refused before, so there is nothing to write
        return KafkaConfigsResult(lines=(command.completed_line,))
    with closing(open_zookeeper()) as configs:
        if command.names:
            name = command.names[0] or None
            found = [(name, configs.of_user(name))]
        else:
            found = [(name, config) for name, config in configs.of_all_users() if _without_credentials(config)]
    return KafkaConfigsResult(lines=tuple(_user_lines(found)), note=_CREDENTIALS_NOTE)


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
