"""How a store is opened, beside its address: what `--command-config`, `--no-wait` and the like decide.

Invariants: client properties carry Kafka's own names and may hold secrets, so they never show in a `repr`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kafka_quotas.stores.unresponsive_brokers import UnresponsiveBrokers

DEFAULT_TIMEOUT_S = 30.0


def _unheard(warning: str) -> None:
    """Drop a warning that nobody asked for."""
    del warning


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """Settings of every kind of store; a store ignores what does not concern it.

    `client_properties` are the lines of a `--command-config` file. `allow_invalid` lets a ZooKeeper store apply
    ZooKeeper's own rules only. `wait` makes a Kafka store read back until a change is visible. `timeout_s` bounds
    each connection attempt, each request and that wait (seconds), where the properties don't. `warn` takes what a
    store has to say beside its answer. `unresponsive` is shared by all that one command opens.
    """

    client_properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    allow_invalid: bool = False
    wait: bool = True
    timeout_s: float = DEFAULT_TIMEOUT_S
    warn: Callable[[str], None] = field(default=_unheard, repr=False, compare=False)
    unresponsive: UnresponsiveBrokers = field(default_factory=UnresponsiveBrokers, repr=False, compare=False)
