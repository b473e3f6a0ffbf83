"""What is asked of a recommendation: the clients that want quotas, what is tolerated, and what brokers can take.

Capacities come in the format of Cruise Control's capacity file:

    {"brokerCapacities": [{"brokerId": "-1", "capacity": {"CPU": "100", "NW_IN": "10000", "NW_OUT": "10000"}}]}

NW_IN and NW_OUT are KiB/s. CPU is `{"num.cores": "8"}`, or a percentage of the whole machine, which implies no number
of cores. Broker -1 is every broker without an entry of its own. DISK is ignored.

**Source:** `BrokerCapacityConfigFileResolver` of Cruise Control.
"""

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.formats.documents import load_json, read_text
from kafka_quotas.core.model.entity import shown_name
from kafka_quotas.core.model.quota_key import FETCH_BYTES, QuotaKey, QuotaType, ValueType
from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, QuotaWindow
from kafka_quotas.core.model.setting import TextForm, setting
from kafka_quotas.core.model.value_format import parse_bytes, parse_duration_ms
from kafka_quotas.pipeline.buckets.proposal import DefaultScope, Proposal

if TYPE_CHECKING:
    from kafka_quotas.pipeline.jobs.recommend.advice import Demand

Capacities = Mapping[int, Mapping[QuotaType, float]]
"""What each broker has for a quota type, in the unit of its key, by broker id; -1 is every other broker."""
_LONGEST_HORIZON_DAYS: Final = 3660
_RESOURCES: Final = (
    (QuotaType.PRODUCE, "NW_IN", 1024.0),
    (QuotaType.FETCH, "NW_OUT", 1024.0),
    (QuotaType.REQUEST, "num.cores", 100.0),
)
"""What limits a quota type, and its factor to the unit of the quota key."""
_SHAPE_HINT: Final = (
    'it is {"brokerCapacities": [{"brokerId": "-1", "capacity": {"CPU": {"num.cores": "8"}, "NW_IN": "10000"}}]}'
)


def neat_limit(key: QuotaKey, value: float, *, rounding: str = ROUND_CEILING) -> float:
    """Round a value to two digits, by default up, such as 1,234,567 bytes to 1.3 MB.

    Returns:
        A whole number of at least 1 if the key takes whole numbers only, at least 0.01 otherwise, and at most the
        key's largest value.
    """
    neat, least = Context(prec=2, rounding=rounding).create_decimal_from_float(value), Decimal("0.01")
    if key.value_type is not ValueType.DOUBLE:
        neat, least = neat.to_integral_value(ROUND_CEILING), Decimal(1)
    return float(min(max(neat, least), Decimal(key.unlimited)))


def _priority(pair: str) -> tuple[str, float]:
    name, _, factor = pair.rpartition("=")
    with suppress(ValueError):
        if name:
            return name, float(factor)
    raise UsageError(f"{pair!r} is not NAME=FACTOR", hint="--priority payments=3")


_MOST_BYTES: Final = 1e15
"""A larger figure than any that means something."""


def _bytes(text: str) -> float:
    try:
        size = parse_bytes(text)
    except UsageError as error:
        raise UsageError(error.message, hint=error.hint and error.hint.removesuffix(", unlimited")) from error
    if size > _MOST_BYTES:
        raise UsageError(f"too large: {text}", hint=f"at most {_MOST_BYTES:.0f}")
    return float(size)


_ASKED: Final = partial(setting, "recommendation")
_BYTES: Final = TextForm(read=_bytes, pattern="", write=lambda size: f"{size / 2**20:g}MiB")
_SECONDS: Final = TextForm(
    read=lambda text: round(parse_duration_ms(text) / 1000), pattern="", write=lambda seconds: f"{seconds // 3600}h"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendPlan:
    """The clients that want quotas, what is tolerated, and capacities, as options, and brokers' windows."""

    scope: DefaultScope = _ASKED(
        "--default-of", "Whose default: of each user, each client-id, or each pair of both.", default=DefaultScope.USER
    )
    overrides: int | None = _ASKED(
        "--overrides N",
        "How many clients may need more than the default; they get quotas of their own. Default: those that need far "
        "more than most.",
        default=None,
        least=0,
    )
    time_share: float = _ASKED(
        "--time-share SHARE", "The share of its active time for which a client may be held back, 0 to 1.", default=0.01
    )
    headroom: float = _ASKED(
        "--headroom FACTOR", "The factor by which a quota exceeds what its clients need.", default=1.2
    )
    capacity_share: float = _ASKED(
        "--capacity-share SHARE",
        "The share of a broker's capacity that clients and replication may take at the same time.",
        default=0.8,
    )
    fetch_floor: float = _ASKED(
        "--fetch-floor RATE",
        "The least default for reading: one whole fetch per second, for under less a consumer may get nothing; 0 for "
        "none.",
        _BYTES,
        default=float(FETCH_BYTES),
    )
    capacities: Capacities | None = _ASKED(
        "--capacity FILE",
        "What brokers can take, in the format of Cruise Control's capacity file; where clients would take more at the "
        "same time, limits are cut to fair shares.",
        TextForm(read=lambda text: read_capacities(Path(text)), pattern=""),
        default=None,
    )
    priorities: tuple[tuple[str, float], ...] = _ASKED(
        "--priority NAME=FACTOR",
        "The factor by which a client's share of a short capacity exceeds that of others; may be repeated.",
        TextForm(read=_priority, pattern=""),
        default=(),
    )
    horizon_days: float = _ASKED(
        "--horizon DAYS", "For how many days of growth the quotas are to suffice.", default=0.0
    )
    min_recorded_s: int = _ASKED(
        "--min-recorded TIME",
        "How much has to be recorded before quotas are written to a file, for example 30s or 168h.",
        _SECONDS,
        default=86_400,
    )
    cluster: str | None = _ASKED(
        "--cluster NAME", "Whose traffic counts, where the events are of several clusters.", default=None
    )
    explained: str | None = None
    """A client of which all that is tried is wanted, by name as `scope` has it, None for none."""
    window: QuotaWindow = DEFAULT_WINDOW
    controller_window: QuotaWindow = DEFAULT_WINDOW
    windows_s: tuple[int, ...] = (60, 3600)
    """Lengths of the windows by which usage is summed up."""
    in_force: Proposal | None = None
    """Quotas in force, with which the recommended ones are compared, None for no comparison."""

    def __post_init__(self) -> None:
        if self.overrides is not None and self.overrides < 0:
            raise UsageError(f"the number of overrides must be from 0, not {self.overrides}")
        if not 0 <= self.time_share < 1:
            raise UsageError(f"time share must be from 0 to below 1, not {self.time_share}")
        if not 1 <= self.headroom < math.inf:
            raise UsageError(f"headroom must be a factor from 1, not {self.headroom}")
        if not 0 < self.capacity_share < math.inf:
            raise UsageError(f"capacity share must be above 0, not {self.capacity_share}")
        if not 0 <= self.fetch_floor < math.inf:
            raise UsageError(f"fetch floor must be from 0, not {self.fetch_floor}")
        if not 0 <= self.horizon_days <= _LONGEST_HORIZON_DAYS:
            raise UsageError(f"the horizon must be from 0 to {_LONGEST_HORIZON_DAYS} days, not {self.horizon_days}")
        for name, factor in self.priorities:
            if not 0 < factor < math.inf:
                raise UsageError(f"the priority of {name} must be above 0, not {factor}")

    def least(self, quota_type: QuotaType) -> float:
        """Return the lower bound of the default of a quota type, 0 for none."""
        return self.fetch_floor if quota_type is QuotaType.FETCH else 0.0

    def name_of(self, demand: "Demand") -> str:
        """Return the name of a client: a user, a client-id, or both with a slash between them."""
        return "/".join(name or "" for _, name in self.scope.entity(demand.user, demand.client_id).parts)

    def priority(self, demand: "Demand") -> float:
        """Return by which factor a client's share of a short capacity exceeds that of others."""
        return dict(self.priorities).get(self.name_of(demand), 1.0)

    def capacity(self, quota_type: QuotaType, broker_id: int) -> float | None:
        """Return a broker's capacity in the unit of the quota key, None if unknown."""
        known = self.capacities or {}
        return known.get(broker_id, known.get(-1, {})).get(quota_type)

    def shown_name(self, demand: "Demand") -> str:
        """Return the name of a client for a sentence, without characters that act on a terminal."""
        return shown_name(self.name_of(demand)) or "(no name)"


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
    """Parse the capacities in a file."""
    try:
        found = {int(entry["brokerId"]): _capacity(entry["capacity"]) for entry in load_json(text)["brokerCapacities"]}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        if isinstance(error, json.JSONDecodeError):
            reason = f"no JSON at line {error.lineno}"
        raise UsageError(f"{source} is not a capacity file: {reason}", hint=_SHAPE_HINT) from error
    if not found:
        raise UsageError(f"{source} names no broker", hint=_SHAPE_HINT)
    return found


def _capacity(resources: Mapping[str, Any]) -> dict[QuotaType, float]:
    processors = resources.get("CPU")
    given = {**resources, **(processors if isinstance(processors, Mapping) else {})}
    found = {kind: float(given[name]) * factor for kind, name, factor in _RESOURCES if name in given}
    for kind, name, _ in _RESOURCES:
        if kind in found and not 0 < found[kind] < math.inf:
            raise ValueError(f"{name} is {given[name]}, not a positive figure")
    return found
