"""Settings with which a store is opened, such as those of `--command-config` and `--no-wait`.

Invariants: client properties have Kafka's own names and may hold secrets, so they never show in a `repr`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kafka_quotas.stores.unresponsive_brokers import UnresponsiveBrokers

DEFAULT_TIMEOUT_S = 30.0


def _unheard(warning: str) -> None:
    """Drop a warning that no caller asked for."""
    del warning


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """Settings for every kind of store.

    A store ignores those that do not concern it.
    """

    client_properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The properties of a `--command-config` file."""
    allow_invalid: bool = False
    """Whether a store leaves out our own refusals and applies those of its server only."""
    wait: bool = True
    """Whether a Kafka store reads a change back until every broker shows it."""
    timeout_s: float = DEFAULT_TIMEOUT_S
    """Seconds for each connection attempt, each request and that wait, where the properties set none."""
    warn: Callable[[str], None] = field(default=_unheard, repr=False, compare=False)
    """Receives warnings that are not part of a result."""
    unresponsive: UnresponsiveBrokers = field(default_factory=UnresponsiveBrokers, repr=False, compare=False)
    """The brokers that do not answer, shared by all stores that one command opens."""
