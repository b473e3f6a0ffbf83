"""The settings of kafka-python's clients in a load test: those that all share, and their errors."""

from collections.abc import Mapping
from typing import Any, Final

from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.loadtest.clients.errors import ClusterUnreachableError, LoadRefusedError
from kafka_quotas.loadtest.clients.raw.access import client_access
from kafka_quotas.loadtest.plan.plan import ClientLoad, LoadPlan

PATIENT_MS: Final = 300_000
"""Longest wait of a throttled request for its response, as for the other clients."""
_BOOTSTRAP_MS: Final = 10_000


def shared_settings(plan: LoadPlan, entity: ClientLoad) -> dict[str, Any]:
    """Return the settings of any client: address, client id, TLS, login.

    Raises:
        UsageError: If a security setting can't be honoured.
    """
    properties = plan.properties_of(entity)
    access = client_access(plan, entity)
    return {
        "bootstrap_servers": (entity.bootstrap or plan.bootstrap).split(","),
        "client_id": entity.name.client_id,
        "bootstrap_timeout_ms": _BOOTSTRAP_MS,
        "security_protocol": properties.get("security.protocol", "PLAINTEXT").strip().upper(),
        "ssl_context": access.tls,
        **_versions(properties),
        **({} if access.login is None else _login(properties, access.login.mechanism)),
    }


def request_timeout_ms(plan: LoadPlan, entity: ClientLoad, *, default_ms: int) -> int:
    """Return the time to wait for a response in ms: `request.timeout.ms` of the plan, or else the default.

    Raises:
        UsageError: If `request.timeout.ms` is not a number of milliseconds in range.
    """
    timeout = plan.properties_of(entity).get("request.timeout.ms")
    if timeout is None:
        return default_ms
    if not timeout.isdecimal() or not 0 < int(timeout) < PATIENT_MS:
        hint = f"1 to {PATIENT_MS - 1}, for example 30000"
        raise UsageError(f"request.timeout.ms is not a number of milliseconds: {timeout!r}", hint=hint)
    return int(timeout)


def translated_error(error: Exception, *, bootstrap: str) -> Exception:
    """Return this project's error for an error of kafka-python, and any other error unchanged."""
    from kafka import errors  # noqa: PLC0415 - only its own clients load the library

    if isinstance(error, KafkaQuotasError) or not isinstance(error, errors.KafkaError):
        return error
    if isinstance(error, errors.SaslAuthenticationFailedError):
        return LoadRefusedError(
            f"authentication failed at {bootstrap}: {_one_line(error)}",
            hint="check sasl.username, sasl.password and sasl.mechanism (-X KEY=VALUE)",
        )
    if isinstance(error, errors.TopicAuthorizationFailedError | errors.GroupAuthorizationFailedError):
        return LoadRefusedError(f"not authorized at {bootstrap}: {_one_line(error)}", hint="kafka-acls --add ..")
    if isinstance(error, errors.KafkaTimeoutError | errors.BrokerNotAvailableError | errors.KafkaConnectionError):
        return ClusterUnreachableError(
            f"no broker answers at {bootstrap}: {_one_line(error)}", hint="check --bootstrap-server HOST:PORT"
        )
    return KafkaQuotasError(f"the Kafka client failed: {_one_line(error)}")


def _versions(properties: Mapping[str, str]) -> dict[str, Any]:
    """Return the broker's version where the library can't read the answer to its question for it."""
    if properties.get("api.version.request", "true") != "false":
        return {}
    version = properties.get("broker.version.fallback", "2.1.0")
    parts = version.split(".")
    if len(parts) < 2 or not all(part.isdecimal() for part in parts):
        raise UsageError(f"broker.version.fallback is not a version: {version!r}", hint="for example 2.1.0")
    return {"api_version": tuple(map(int, parts[:2]))}


def _login(properties: Mapping[str, str], mechanism: str) -> dict[str, Any]:
    return {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": properties["sasl.username"],
        "sasl_plain_password": properties["sasl.password"],
    }


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
