"""How a store is opened, beside its address: what `--command-config`, `--no-wait` and the like decide.

Invariants: client properties carry Kafka's own names and may hold secrets, so they never show in a `repr`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

DEFAULT_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """Settings of every kind of store; a store ignores what does not concern it.

    `client_properties` are the lines of a `--command-config` file. `allow_invalid` lets a ZooKeeper store apply
    ZooKeeper's own rules only. `wait` makes a Kafka store read back until a change is visible. `timeout_s` bounds
    each connection attempt, each request and that wait (seconds).
    """

    client_properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    allow_invalid: bool = False
    wait: bool = True
    timeout_s: float = DEFAULT_TIMEOUT_S
