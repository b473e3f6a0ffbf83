"""Timeouts for a store's servers, from Kafka's client properties.

**Source:** `AdminClientConfig` and `KafkaAdminClient.configureDefaultApiTimeoutMs`, Kafka 4.3.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kafka_quotas.core.errors import UsageError
from kafka_quotas.stores.settings import StoreSettings

CALL: Final = "default.api.timeout.ms"
REQUEST: Final = "request.timeout.ms"
_LARGEST_MS: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """The longest waits for a store's servers (seconds)."""

    call_s: float
    """For a whole call, all its attempts included, and for a change to show."""
    request_s: float | None = None
    """For one attempt at one server, None where the kind of attempt decides."""


def timeouts(settings: StoreSettings) -> Timeouts:
    """Return the timeouts of the client properties, or else those of the settings.

    Raises:
        UsageError: A timeout is not a positive whole number of milliseconds, or a request would outlast its call.
    """
    properties = settings.client_properties
    call_s, request_s = _seconds(properties, CALL), _seconds(properties, REQUEST)
    if call_s is None:
        return Timeouts(call_s=max(settings.timeout_s, request_s or 0), request_s=request_s)
    if request_s is not None and request_s > call_s:
        raise UsageError(f"{CALL} is shorter than {REQUEST}", hint=f"lower {REQUEST}, or raise {CALL}")
    return Timeouts(call_s=call_s, request_s=request_s)


def _seconds(properties: Mapping[str, str], name: str) -> float | None:
    text = properties.get(name, "").strip()
    if not text:
        return None
    milliseconds = int(text) if text.isascii() and text.isdigit() else 0
    if not 0 < milliseconds <= _LARGEST_MS:
        raise UsageError(f"{name}: {text!r} is no time", hint="it is a positive whole number of milliseconds")
    return milliseconds / 1000
