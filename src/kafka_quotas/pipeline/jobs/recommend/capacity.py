"""The capacity of brokers, what replication takes of it, and fair shares of the rest.

Capacities come in the format of Cruise Control's capacity file:

    {"brokerCapacities": [{"brokerId": "-1", "capacity": {"CPU": "100", "NW_IN": "10000", "NW_OUT": "10000"}}]}

NW_IN and NW_OUT are KiB/s. CPU is `{"num.cores": "8"}`, or a percentage of the whole machine, which implies no number
of cores. Broker -1 is every broker without an entry of its own. DISK is ignored.

Shares are weighted max-min fair. Every client gets what it wants up to a common level times its priority, and the level
is as high as the capacity allows: nobody can get more without somebody getting less who has no more.

**Source:** `BrokerCapacityConfigFileResolver` of Cruise Control; "Data Networks" (Bertsekas, Gallager), section 6.5.
"""

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.formats.documents import load_json, read_text
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.tables.schemas import PACKED_EVENTS

if TYPE_CHECKING:
    from kafka_quotas.pipeline.engine.runner import Events

_DEFAULT_BROKER: Final = -1
_KIB: Final = 1024.0
_PERCENT_PER_CORE: Final = 100.0
_SHAPE_HINT: Final = (
    'it is {"brokerCapacities": [{"brokerId": "-1", "capacity": {"CPU": {"num.cores": "8"}, "NW_IN": "10000"}}]}'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerCapacity:
    """The capacity of one broker, None if the file has no figure."""

    bytes_in_per_second: float | None
    bytes_out_per_second: float | None
    cores: float | None

    def of(self, quota_type: QuotaType) -> float | None:
        """Return the capacity in the unit of a quota type's key, None if unknown or for mutations."""
        if quota_type is QuotaType.PRODUCE:
            return self.bytes_in_per_second
        if quota_type is QuotaType.FETCH:
            return self.bytes_out_per_second
        if quota_type is QuotaType.REQUEST and self.cores is not None:
            return self.cores * _PERCENT_PER_CORE
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacities:
    """Capacities by broker id, with -1 for all others."""

    by_broker: Mapping[int, BrokerCapacity]

    def of(self, broker_id: int) -> BrokerCapacity | None:
        """Return the capacity of a broker, None if neither it nor broker -1 is in the file."""
        return self.by_broker.get(broker_id) or self.by_broker.get(_DEFAULT_BROKER)


def read_capacities(path: Path) -> Capacities:
    """Read a file of capacities.

    Raises:
        UsageError: The file can't be read, is no capacity file, or names no broker.
    """
    try:
        return parse_capacities(read_text(path), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"can't read {path}: {getattr(error, 'strerror', None) or error}") from error


def parse_capacities(text: str, source: str) -> Capacities:
    """Parse the capacities in a file.

    Raises:
        UsageError: The text is no capacity file or names no broker. The message names `source`.
    """
    try:
        found = {int(entry["brokerId"]): _capacity(entry["capacity"]) for entry in load_json(text)["brokerCapacities"]}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{source} is not a capacity file: {_reason(error)}", hint=_SHAPE_HINT) from error
    if not found:
        raise UsageError(f"{source} names no broker", hint=_SHAPE_HINT)
    return Capacities(by_broker=found)


def _capacity(resources: Mapping[str, Any]) -> BrokerCapacity:
    processors = resources.get("CPU")
    return BrokerCapacity(
        bytes_in_per_second=_scaled(resources, "NW_IN", _KIB),
        bytes_out_per_second=_scaled(resources, "NW_OUT", _KIB),
        cores=_scaled(processors, "num.cores", 1.0) if isinstance(processors, Mapping) else None,
    )


def _scaled(resources: Mapping[str, Any], name: str, factor: float) -> float | None:
    if name not in resources:
        return None
    figure = float(resources[name])
    if not 0 < figure < float("inf"):
        raise ValueError(f"{name} is {resources[name]}, not a positive figure")
    return figure * factor


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"no JSON at line {error.lineno}"
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


class Want(NamedTuple):
    """What clients would be allowed at a broker."""

    limit: float
    """What one of them would be allowed, in the unit of the quota key."""
    priority: float = 1.0
    """By which factor its share exceeds that of others, above 0."""
    clients: int = 1
    """Clients of whom each wants that much."""


def fair_level(wants: Iterable[Want], capacity: float) -> float:
    """Return the level up to which wants are met, per unit of priority.

    Args:
        wants: The wants at one broker.
        capacity: What there is to share, in their unit; below 0 counts as 0.

    Returns:
        Infinity if all wants fit.
    """
    left = max(capacity, 0.0)
    ranked = sorted(
        (each for each in wants if each.limit * each.clients > 0), key=lambda each: each.limit / each.priority
    )
    if sum(each.limit * each.clients for each in ranked) <= left:
        return math.inf
    priorities = sum(each.priority * each.clients for each in ranked)
    for each in ranked:
        level = left / priorities
        if each.limit / each.priority > level:
            return level
        left -= each.limit * each.clients
        priorities -= each.priority * each.clients
    return math.inf


_FETCHER: Final = re.compile(r"broker-(\d{1,9})-fetcher-\d+")
"""The client-id of a follower's fetcher (`BrokerBlockingSender`, Kafka 4.0)."""


def replication_of(events: "Events", *, cluster: str, seconds: int) -> dict[int, tuple[float, float]]:
    """Return what followers fetch from each broker and what each fetches as one, in bytes/s.

    `seconds` is the length of the recording. A follower is recognised by the client-id of its fetcher.
    """
    rows = events.tables.query(
        f"""SELECT cluster, broker_id, client_id, sum(total_bytes) AS bytes FROM {events.table(PACKED_EVENTS)}
        WHERE is_exempt AND quota_type = 'fetch' GROUP BY cluster, broker_id, client_id"""
    )
    found: dict[int, tuple[int, int]] = defaultdict(lambda: (0, 0))  # whole bytes add up alike in any order
    for row in rows.to_pylist():
        if row["cluster"] == cluster:
            amount = row["bytes"]
            sent, received = found[row["broker_id"]]
            found[row["broker_id"]] = (sent + amount, received)
            if follower := _FETCHER.fullmatch(row["client_id"]):
                sent, received = found[int(follower[1])]
                found[int(follower[1])] = (sent, received + amount)
    return {broker_id: (sent / seconds, received / seconds) for broker_id, (sent, received) in found.items()}
