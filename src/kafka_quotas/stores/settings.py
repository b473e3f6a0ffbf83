"""Settings with which a store is opened, such as those of `--command-config` and `--no-wait`, and its timeouts.

Invariants: client properties have Kafka's own names and may hold secrets, so they never show in a `repr`.
**Source:** `AdminClientConfig` and `KafkaAdminClient.configureDefaultApiTimeoutMs`, Kafka 4.3, for the timeouts.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from kafka_quotas.core.errors import UsageError
from kafka_quotas.stores.servers import UnresponsiveBrokers

DEFAULT_TIMEOUT_S: Final = 30.0
_REQUEST: Final = "request.timeout.ms"
_CALL: Final = "default.api.timeout.ms"
_LARGEST_MS: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """Settings for every kind of store, which ignores those that do not concern it."""

    client_properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    allow_invalid: bool = False
    """Whether a store leaves out our own refusals and applies those of its server only."""
    wait: bool = True
    """Whether a Kafka store reads a change back until every broker shows it."""
    timeout_s: float = DEFAULT_TIMEOUT_S
    """Seconds for each connection attempt, each request and that wait, where the properties set none."""
    warn: Callable[[str], None] = field(default=lambda _: None, repr=False, compare=False)
    """Receives warnings that are not part of a result."""
    unresponsive: UnresponsiveBrokers = field(default_factory=UnresponsiveBrokers, repr=False, compare=False)
    """The brokers that do not answer, shared by all stores that one command opens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """The longest waits for a store's servers (seconds)."""

    call_s: float
    """For a whole call, all its attempts included, and for a change to show."""
    request_s: float | None = None
    """For one attempt at one server, None where the kind of attempt decides."""


def timeouts(settings: StoreSettings) -> Timeouts:
    """Return the timeouts of the client properties, or else those of the settings."""
    properties = settings.client_properties
    call_s, request_s = _seconds(properties, _CALL), _seconds(properties, _REQUEST)
    if call_s is None:
        return Timeouts(call_s=max(settings.timeout_s, request_s or 0), request_s=request_s)
    if request_s is not None and request_s > call_s:
        raise UsageError(f"{_CALL} is shorter than {_REQUEST}", hint=f"lower {_REQUEST}, or raise {_CALL}")
    return Timeouts(call_s=call_s, request_s=request_s)


def _seconds(properties: Mapping[str, str], name: str) -> float | None:
    text = properties.get(name, "").strip()
    if not text:
        return None
    milliseconds = int(text) if text.isascii() and text.isdigit() else 0
    if not 0 < milliseconds <= _LARGEST_MS:
        raise UsageError(f"{name}: {text!r} is not a time", hint="it is a positive whole number of milliseconds")
    return milliseconds / 1000
