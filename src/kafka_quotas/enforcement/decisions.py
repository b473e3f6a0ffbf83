"""The requests of other programs for decisions on quotas, the decisions, and the JSON form of both.

`DecisionRequest` and `Decision` are named tuples: clients that send batches make some hundred thousand of them per
second.
**Source:** `docs/reference/decision-api.md`.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.java import well_formed
from kafka_quotas.core.model.quota_key import QuotaType, ResourceQuota
from kafka_quotas.enforcement.config.rules import ANONYMOUS

PROTOCOL_VERSION: Final = 1
MAX_BATCH: Final = 1000
"""Most requests in one message."""
BATCH: Final = "batch"

Json: TypeAlias = Any
T = TypeVar("T")


class Operation(StrEnum):
    """The operation on an amount."""

    RECORD = "record"
    """Charge the amount and return how long the client has to wait."""
    CHECK = "check"
    """Return how long the client would have to wait, without charging it."""
    UNRECORD = "unrecord"
    """Give back an amount that was charged in vain."""


AnyQuotaType: TypeAlias = QuotaType | ResourceQuota
ANY_QUOTA_TYPES: Final[dict[str, AnyQuotaType]] = {each.value: each for each in (*QuotaType, *ResourceQuota)}
"""Types that decisions can be requested for, by name."""
_OPS: Final = {op.value: op for op in Operation}


class DecisionRequest(NamedTuple):
    """One request: an operation on an amount of one quota.

    Connections go by `ip` and topics by `topic`; for the other types the two only appear in the event log.
    """

    op: Operation
    quota_type: AnyQuotaType
    amount: float
    """Amount in the type's unit: bytes, ms of thread time, partitions, requests, connections."""
    user: str = ANONYMOUS
    client_id: str = ""
    ip: str = ""
    topic: str = ""
    broker: int | None = None
    """Node id, None for the broker of the bootstrap address."""


class Decision(NamedTuple):
    """The delay of one request and the quota that requires it."""

    delay_ms: int
    """Time that the client has to wait, 0 for none."""
    quota: str
    """Key of the quota."""
    entity: str
    """Entity whose limit it is, "" without a limit."""
    limit: float
    """Limit per second."""
    observed: float
    """Measured rate per second, of mutations the tokens left."""
    is_shadow: bool = False
    """Whether the client's quotas are in shadow mode, so no client should wait for them."""


class DecisionError(KafkaQuotasError):
    """Error for a request that can't be answered."""


def is_decision(op: object) -> bool:
    """Return whether a message with this `op` is about decisions."""
    return isinstance(op, str) and (op in _OPS or op == BATCH)


def requests_from_json(message: Mapping[str, Json]) -> list[DecisionRequest | DecisionError]:
    """Return the requests of a message, with an error for each that can't be understood.

    A message is one request itself, or a batch of them.
    """
    version = message.get("v", PROTOCOL_VERSION)
    if version != PROTOCOL_VERSION:
        raise DecisionError(f"version {version!r} is not spoken here; the one there is: {PROTOCOL_VERSION}")
    items = message.get("items") if message.get("op") == BATCH else [message]
    if not isinstance(items, list) or len(items) > MAX_BATCH:
        raise DecisionError(f"a batch has a list of items, at most {MAX_BATCH}")
    return [_request_or_error(item) for item in items]


def _request_or_error(data: object) -> DecisionRequest | DecisionError:
    try:
        return request_from_json(data)
    except DecisionError as error:
        return error


def request_from_json(data: object) -> DecisionRequest:
    """Return the request of one object."""
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


def request_to_json(request: DecisionRequest) -> dict[str, Json]:
    """Return the object of one request."""
    fields = request._asdict()
    return {"type": fields.pop("quota_type").value, **fields}


def decision_to_json(decision: Decision) -> dict[str, Json]:
    """Return the object of one decision, in which `quota` is null without a limit."""
    quota = {"key": decision.quota, "entity": decision.entity, "limit": decision.limit, "observed": decision.observed}
    return {"delay_ms": decision.delay_ms, "quota": quota if decision.entity else None, "shadow": decision.is_shadow}


def decision_from_json(data: Mapping[str, Json], request: DecisionRequest) -> Decision | DecisionError:
    """Return the decision on a request, or the error that its answer reports."""
    if data["ok"] is not True:
        return DecisionError(well_formed(str(data["error"])))
    quota = data["quota"] or {"key": request.quota_type.key.name, "entity": "", "limit": 0.0, "observed": 0.0}
    entity = well_formed(quota["entity"])
    return Decision(data["delay_ms"], quota["key"], entity, quota["limit"], quota["observed"], data["shadow"])


def _one_of(choices: Mapping[str, T], data: Mapping[str, Json], name: str) -> T:
    value = data.get(name)
    found = choices.get(value) if isinstance(value, str) else None
    if found is None:
        raise DecisionError(f"{name} is one of {', '.join(choices)}, not {value!r}")
    return found


def _amount(data: Mapping[str, Json]) -> float:
    amount: object = data.get("amount", 0)
    if isinstance(amount, bool) or not isinstance(amount, int | float) or not 0 <= amount <= 2.0**63:
        raise DecisionError(f"amount is a number from 0 to 2^63, not {amount!r}")
    return amount


def _text(data: Mapping[str, Json], name: str, default: str = "") -> str:
    value = data.get(name, default)
    if not isinstance(value, str):
        raise DecisionError(f"{name} is a text, not {value!r}")
    return well_formed(value)
