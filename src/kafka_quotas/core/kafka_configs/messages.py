"""The messages of `kafka-configs` about a failed command, and our warnings about a doubtful one.

A failure is two lines, the second from a Java exception. Scripts look for the names of the exceptions, so they are the
original's, without its stack trace. The warnings are about effects that are probably not intended and on which the
original is silent.

**Source:** `ConfigCommand.main`, `org.apache.kafka.common.protocol.Errors` (Kafka 4.3).
"""

import math
from collections.abc import Iterator, Sequence

from kafka_quotas.core.errors import InvalidQuotaError, UsageError
from kafka_quotas.core.java import double as java_double
from kafka_quotas.core.kafka_configs.arguments import Action, KafkaConfigsCommand
from kafka_quotas.core.kafka_configs.entities import NAMED_FLAGS
from kafka_quotas.core.kafka_configs.keys import NOT_SUPPORTED
from kafka_quotas.core.kafka_configs.options import ILLEGAL_ARGUMENT, USAGE, KafkaConfigsError, usage_text

_NAME_OPTIONS = ("entity-name", *NAMED_FLAGS)


def warnings(command: KafkaConfigsCommand) -> list[str]:
    """Return the warnings to print before an alteration, each in one line, none for other actions."""
    if command.action is not Action.ALTER:
        return []
    return [*_about_names(command), *_about_values(command), *_about_ignored_words(command)]


def _about_names(command: KafkaConfigsCommand) -> Iterator[str]:
    for option in _NAME_OPTIONS:
        for name in command.options.values(option):
            if not name:
                yield f"--{option} is empty, so it means the default; is the shell variable behind it set?"
            elif name.startswith("--"):
                yield f"--{option} takes {name} as the name; is the shell variable in between set?"


def _about_values(command: KafkaConfigsCommand) -> Iterator[str]:
    for key, text in command.added.items():
        try:
            value = java_double.parse(text)
        except InvalidQuotaError:
            continue  # refused in its turn, in the words of the original
        if math.isnan(value):
            yield f"{key}=NaN is taken by KRaft brokers and limits nothing in a way anybody could rely on"


def _about_ignored_words(command: KafkaConfigsCommand) -> Iterator[str]:
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


def broker_failure(code: str, message: str, *, hint: str | None = None) -> KafkaConfigsError:
    """Return the error for a broker's error code, or for `TIMED_OUT` and the like.

    Args:
        code: Kafka's name of the error.
        message: The text of the broker.
        hint: The advice to the user.
    """
    simple = _ODD_CLASSES.get(code) or "".join(word.capitalize() for word in code.split("_")) + "Exception"
    return KafkaConfigsError(message, error_class=f"{FUTURE}{_PACKAGE}{simple}", hint=hint)


def controllers_not_asked() -> KafkaConfigsError:
    """Return the error of every quota command with `--bootstrap-controller`, as in Kafka 4.3."""
    return broker_failure(
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
    joptsimple = error.error_class.startswith("joptsimple.")
    if joptsimple or error.error_class in _TEXT_ALONE:
        lines = [error.message]
    else:
        reason = f"{error.error_class}: {error.message}" if error.error_class else error.message
        lines = [f"Error while executing config command with args '{' '.join(arguments)}'", reason]
    if error.error_class == USAGE:
        lines += usage_text().splitlines()
    return lines
