"""The JSON form of requests and decisions: one object per line.

**Source:** `docs/reference/decision-api.md`.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias, TypeVar

from kafka_quotas.core.java.strings import well_formed
from kafka_quotas.enforcement.config.rules import ANONYMOUS
from kafka_quotas.enforcement.decisions.messages import (
    ANY_QUOTA_TYPES,
    MAX_BATCH,
    PROTOCOL_VERSION,
    Decision,
    DecisionError,
    DecisionRequest,
    Operation,
    is_amount,
)

Json: TypeAlias = Any
BATCH: Final = "batch"
_OPS: Final = {op.name.lower(): op for op in Operation}

T = TypeVar("T")


def is_decision(op: object) -> bool:
    """Return whether a message with this `op` is about decisions."""
    return isinstance(op, str) and (op in _OPS or op == BATCH)


def read_requests(message: Mapping[str, Json]) -> list[DecisionRequest | DecisionError]:
    """Return the requests of a message, with an error for each that can't be understood.

    A message is one request itself, or a batch of them.

    Raises:
        DecisionError: The batch is no list of items, or too large.
    """
    items = message.get("items") if message.get("op") == BATCH else [message]
    if not isinstance(items, list) or len(items) > MAX_BATCH:
        raise DecisionError(f"a batch has a list of items, at most {MAX_BATCH}")
    return [_request_or_error(item) for item in items]


def _request_or_error(data: object) -> DecisionRequest | DecisionError:
    try:
        return read_request(data)
    except DecisionError as error:
        return error


def read_request(data: object) -> DecisionRequest:
    """Return the request of one object.

    Raises:
        DecisionError: The object is no request.
    """
    if not isinstance(data, dict):
        raise DecisionError("not an object")
    broker = data.get("broker")
    if broker is not None and (not isinstance(broker, int) or isinstance(broker, bool)):
        raise DecisionError(f"broker is a node id, not {broker!r}")
    return DecisionRequest(
        _one_of(_OPS, data, "op"),
        _one_of(ANY_QUOTA_TYPES, data, "type"),
        _amount(data),
        _text(data, "user", ANONYMOUS),
        _text(data, "client_id"),
        _text(data, "ip"),
        _text(data, "topic"),
        broker,
    )


def write_decision(decision: Decision) -> dict[str, Json]:
    """Return the object of one decision, in which `quota` is null without a limit."""
    quota = {"key": decision.quota, "entity": decision.entity, "limit": decision.limit, "observed": decision.observed}
    return {"delay_ms": decision.delay_ms, "quota": quota if decision.entity else None, "shadow": decision.is_shadow}


def read_version(message: Mapping[str, Json]) -> None:
    """Refuse a message of another protocol version.

    Raises:
        DecisionError: The version is not `PROTOCOL_VERSION`.
    """
    version = message.get("v", PROTOCOL_VERSION)
    if version != PROTOCOL_VERSION:
        raise DecisionError(f"version {version!r} is not spoken here; the one there is: {PROTOCOL_VERSION}")


def _one_of(choices: Mapping[str, T], data: Mapping[str, Json], name: str) -> T:
    value = data.get(name)
    found = choices.get(value) if isinstance(value, str) else None
    if found is None:
        raise DecisionError(f"{name} is one of {', '.join(choices)}, not {value!r}")
    return found


def _amount(data: Mapping[str, Json]) -> float:
    amount = data.get("amount", 0)
    if isinstance(amount, bool) or not isinstance(amount, int | float) or not is_amount(amount):
        raise DecisionError(f"amount is a number from 0 to 2^63, not {amount!r}")
    return amount


def _text(data: Mapping[str, Json], name: str, default: str = "") -> str:
    value = data.get(name, default)
    if not isinstance(value, str):
        raise DecisionError(f"{name} is a text, not {value!r}")
    return well_formed(value)
