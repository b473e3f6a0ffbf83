"""The file of a cost model: JSON, one object per API.

    {"version": 1, "source": "...", "other": {"request_us": 120},
     "apis": {"Produce": {"request_us": 90, "request_byte_ns": 0.4, "response_byte_ns": 0.1}}}

Invariants: figures are finite and 0 or more; a file with a part that is not understood is refused whole.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

from kafka_quotas.core.errors import KafkaQuotasError, UsageError, near_hint
from kafka_quotas.core.formats.documents import read_text
from kafka_quotas.core.formats.nodes import json_node
from kafka_quotas.core.formats.typed_document import FieldSpec, read_record
from kafka_quotas.core.quotas.quota_charges import ApiCost, CostModel
from kafka_quotas.wire.protocol.api_table import API_TABLE

VERSION: Final = 1
_FIGURES: Final = {
    "request_us": ("request_nanos", 1000.0),
    "request_byte_ns": ("request_byte_nanos", 1.0),
    "response_byte_ns": ("response_byte_nanos", 1.0),
}
"""Figures of an API, with their fields in `ApiCost` and the nanoseconds of their units."""
_KEYS: Final = {api.name: key for key, api in API_TABLE.items()}


def read_cost_model(path: Path) -> CostModel:
    """Read the cost model in a file.

    Raises:
        UsageError: The file can't be read or understood.
    """
    try:
        text = read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise UsageError(f"cannot read {path}: {reason}", hint="daemon calibrate writes one") from error
    return read_record(_Model, json_node(text, str(path))).model()


def write_cost_model(path: Path, model: CostModel) -> None:
    """Write a cost model to a file.

    Raises:
        KafkaQuotasError: The file can't be written.
    """
    try:
        path.write_text(json.dumps(cost_model_to_json(model), indent=2) + "\n", "utf-8")
    except OSError as error:
        raise KafkaQuotasError(f"cannot write {path}: {error.strerror}") from error


def cost_model_to_json(model: CostModel) -> dict[str, Any]:
    """Return the model as JSON values, with figures rounded to four digits."""
    names = {key: name for name, key in _KEYS.items()}
    return {
        "version": VERSION,
        "source": model.source,
        "other": _cost_to_json(model.other),
        "apis": {names[key]: _cost_to_json(cost) for key, cost in sorted(model.apis.items())},
    }


def _cost_to_json(cost: ApiCost) -> dict[str, float]:
    return {name: float(f"{getattr(cost, field) / nanos:.4g}") for name, (field, nanos) in _FIGURES.items()}


def _figure(value: float) -> float:
    if not 0 <= value < math.inf:
        raise UsageError(f"it must be a number from 0 on, not {value:g}")
    return value


_Figure: TypeAlias = Annotated[float, FieldSpec(_figure, example="112")]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cost:
    request_us: _Figure
    request_byte_ns: _Figure = 0.0
    response_byte_ns: _Figure = 0.0

    def cost(self) -> ApiCost:
        return ApiCost(**{field: getattr(self, name) * nanos for name, (field, nanos) in _FIGURES.items()})


def _this_version(number: int) -> int:
    if number != VERSION:
        raise UsageError(f"it is not a cost model of version {VERSION}", hint="daemon calibrate writes one")
    return number


def _known_apis(costs: Mapping[str, _Cost]) -> Mapping[str, _Cost]:
    unknown = costs.keys() - _KEYS.keys()
    if unknown:
        name = min(unknown)
        hint = near_hint(name, _KEYS, otherwise="names are Kafka's, such as Produce or JoinGroup")
        raise UsageError(f"there is no API {name!r}", hint=hint)
    return costs


@dataclass(frozen=True, slots=True, kw_only=True)
class _Model:
    version: Annotated[int, FieldSpec(_this_version, example=str(VERSION))]
    source: str
    other: _Cost
    apis: Annotated[Mapping[str, _Cost], FieldSpec(_known_apis)]

    def model(self) -> CostModel:
        apis = {_KEYS[name]: cost.cost() for name, cost in self.apis.items()}
        return CostModel(source=self.source, other=self.other.cost(), apis=apis)


DEFAULT_COSTS: Final = _Model(
    version=VERSION,
    source="default: Kafka 4.3.1 on two busy cores",
    other=_Cost(request_us=112),
    apis={
        "Produce": _Cost(request_us=154, request_byte_ns=2.0),
        "Fetch": _Cost(request_us=180, response_byte_ns=0.22),
        "ListOffsets": _Cost(request_us=133),
        "Metadata": _Cost(request_us=124),
        "OffsetCommit": _Cost(request_us=117),
        "OffsetFetch": _Cost(request_us=80),
        "FindCoordinator": _Cost(request_us=80),
        "JoinGroup": _Cost(request_us=98),
        "Heartbeat": _Cost(request_us=121),
        "SyncGroup": _Cost(request_us=83),
        "DescribeGroups": _Cost(request_us=104),
        "ListGroups": _Cost(request_us=107),
        "ApiVersions": _Cost(request_us=57),
        "DescribeConfigs": _Cost(request_us=425),
    },
).model()
"""Costs for daemons without a calibration: measured with `daemon calibrate` on one broker of Kafka 4.3.1.

The machine had two cores and much else to do, and each figure is the least of three runs: an order of magnitude.
"""
