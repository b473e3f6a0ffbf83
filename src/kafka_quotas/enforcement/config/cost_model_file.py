"""The file of a cost model: JSON, one object per API.

    {"version": 1, "source": "...", "other": {"request_us": 120},
     "apis": {"Produce": {"request_us": 90, "request_byte_ns": 0.4, "response_byte_ns": 0.1}}}

Invariants: figures are finite and 0 or more; a file is refused as soon as a part of it is not understood.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.core.formats.documents import load_json, read_text
from kafka_quotas.core.quotas.cost_model import ApiCost, CostModel
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
        data = load_json(read_text(path))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", hint="daemon calibrate writes one") from error
    except ValueError as error:
        raise UsageError(f"{path} is not JSON: {error}", hint="daemon calibrate writes one") from None
    try:
        return cost_model_from_json(data)
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", hint=error.hint) from None


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


def cost_model_from_json(data: object) -> CostModel:
    """Return the model that `cost_model_to_json` wrote.

    Raises:
        UsageError: The values are no cost model.
    """
    if not isinstance(data, dict) or data.get("version") != VERSION:
        raise UsageError(f"it is not a cost model of version {VERSION}", hint="daemon calibrate writes one")
    others = data.keys() - {"version", "source", "other", "apis"}
    if others:
        raise UsageError(f"unknown entry {min(others)!r}", hint="known are version, source, other and apis")
    if not isinstance(data.get("source"), str) or not isinstance(data.get("apis"), dict):
        raise UsageError("source is no text, or apis no object")
    unknown = data["apis"].keys() - _KEYS.keys()
    if unknown:
        raise UsageError(f"there is no API {min(unknown)!r}", hint="names are Kafka's, such as Produce or JoinGroup")
    return CostModel(
        source=data["source"],
        other=_cost_from_json("other", data.get("other")),
        apis={_KEYS[name]: _cost_from_json(name, cost) for name, cost in data["apis"].items()},
    )


def _cost_to_json(cost: ApiCost) -> dict[str, float]:
    return {name: float(f"{getattr(cost, field) / nanos:.4g}") for name, (field, nanos) in _FIGURES.items()}


def _cost_from_json(name: str, data: object) -> ApiCost:
    if not isinstance(data, Mapping) or "request_us" not in data or data.keys() - _FIGURES.keys():
        raise UsageError(f"{name} has other figures than {', '.join(_FIGURES)}", hint="request_us is needed")
    for figure, value in data.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise UsageError(f"{name}: {figure} must be a number from 0 on, not {value!r}")
    return ApiCost(**{field: data.get(figure, 0.0) * nanos for figure, (field, nanos) in _FIGURES.items()})


DEFAULT_COSTS: Final = cost_model_from_json(
    {
        "version": VERSION,
        "source": "default: Kafka 4.3.1 on two busy cores",
        "other": {"request_us": 112},
        "apis": {
            "Produce": {"request_us": 154, "request_byte_ns": 2.0},
            "Fetch": {"request_us": 180, "response_byte_ns": 0.22},
            "ListOffsets": {"request_us": 133},
            "Metadata": {"request_us": 124},
            "OffsetCommit": {"request_us": 117},
            "OffsetFetch": {"request_us": 80},
            "FindCoordinator": {"request_us": 80},
            "JoinGroup": {"request_us": 98},
            "Heartbeat": {"request_us": 121},
            "SyncGroup": {"request_us": 83},
            "DescribeGroups": {"request_us": 104},
            "ListGroups": {"request_us": 107},
            "ApiVersions": {"request_us": 57},
            "DescribeConfigs": {"request_us": 425},
        },
    }
)
"""Costs for daemons without a calibration: measured with `daemon calibrate` on one broker of Kafka 4.3.1.

The machine had two cores and much else to do, and each figure is the least of three runs: an order of magnitude.
"""
