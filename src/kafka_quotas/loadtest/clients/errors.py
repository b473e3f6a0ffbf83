"""Kafka client errors as this project's errors: one line for what failed, and a hint for what to do."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from kafka_quotas.core.errors import KafkaQuotasError, UsageError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

_Client = TypeVar("_Client")


class ClusterUnreachableError(KafkaQuotasError):
    """A failure to reach any broker at the bootstrap address, at the start or during the run."""


class LoadRefusedError(KafkaQuotasError):
    """A refusal by the cluster: authentication, authorization, or a topic that is missing or empty."""


def translated(error: "KafkaError", *, bootstrap: str) -> KafkaQuotasError:
    """Return this project's error for an error of librdkafka."""
    from confluent_kafka import KafkaError  # noqa: PLC0415 - loads librdkafka

    code = error.code()
    if code in (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED):  # noqa: SLF001 - their public names
        return LoadRefusedError(
            f"authentication failed at {bootstrap}: {_one_line(error)}",
            hint="check sasl.username, sasl.password and sasl.mechanism (-X KEY=VALUE)",
        )
    if code == KafkaError._SSL:  # noqa: SLF001
        return LoadRefusedError(
            f"TLS failed at {bootstrap}: {_one_line(error)}", hint="check ssl.ca.location and the listener's protocol"
        )
    if code in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE, KafkaError._TIMED_OUT):  # noqa: SLF001
        return ClusterUnreachableError(
            f"no broker answers at {bootstrap}: {_one_line(error)}", hint="check --bootstrap-server HOST:PORT"
        )
    missing = {
        KafkaError.TOPIC_AUTHORIZATION_FAILED: "--topic NAME --operation Write (Read for consumers)",
        KafkaError.GROUP_AUTHORIZATION_FAILED: "--group NAME --operation Read",
    }
    if code in missing:
        return LoadRefusedError(
            f"not authorized at {bootstrap}: {_one_line(error)}",
            hint=f"kafka-acls --add {missing[code]} --allow-principal User:NAME",
        )
    return KafkaQuotasError(f"the Kafka client failed: {_one_line(error)}")


def open_client(kind: Callable[[dict[str, Any]], _Client], properties: Mapping[str, object]) -> _Client:
    """Open a client of librdkafka.

    Raises:
        UsageError: If librdkafka refuses a property.
    """
    from confluent_kafka import KafkaError, KafkaException  # noqa: PLC0415 - loads librdkafka

    try:
        return kind(dict(properties))
    except (KafkaException, ValueError, TypeError) as error:
        reason = error.args[0] if error.args else error
        raise UsageError(
            f"a client property is refused: {_one_line(reason) if isinstance(reason, KafkaError) else reason}",
            hint="-X takes librdkafka's names, see its CONFIGURATION.md",
        ) from error


def is_fatal(error: "KafkaError") -> bool:
    """Return whether a librdkafka error is permanent, which ends a run at once."""
    from confluent_kafka import KafkaError  # noqa: PLC0415 - loads librdkafka

    return error.fatal() or error.code() in (
        KafkaError._AUTHENTICATION,  # noqa: SLF001
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError._SSL,  # noqa: SLF001
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
    )


def _one_line(error: "KafkaError") -> str:
    return " ".join(error.str().split()).rstrip(".")
