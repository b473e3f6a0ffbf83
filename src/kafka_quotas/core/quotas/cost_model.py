"""An estimate of the thread time that requests cost a broker: a cost per request of an API and per byte.

Only the broker can measure its thread time. The model has a figure per API for the time on an I/O thread, one per byte
of the request for reading and handling it, and one per byte of the response for sending it on a network thread.
Everything computed from it is an estimate and is labelled so.

Invariants: figures are 0 or more. An API that the model does not name costs `other`.

**Source:** KIP-124 for what is counted (I/O and network thread time together).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCost:
    """The cost of one API in nanoseconds per request, per request byte and per response byte."""

    request_nanos: float
    request_byte_nanos: float = 0.0
    response_byte_nanos: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CostModel:
    """The costs by API key."""

    source: str
    """The origin of the figures."""
    other: ApiCost
    """The cost of an API that `apis` does not name."""
    apis: Mapping[int, ApiCost] = field(default_factory=dict)

    def request_nanos(self, api_key: int, frame_length: int) -> float:
        """Return the estimated time in ns that a request of `frame_length` bytes takes on an I/O thread."""
        cost = self.apis.get(api_key, self.other)
        return cost.request_nanos + cost.request_byte_nanos * frame_length

    def response_nanos(self, api_key: int, frame_length: int) -> float:
        """Return the estimated time in ns to send a response of `frame_length` bytes on a network thread."""
        return self.apis.get(api_key, self.other).response_byte_nanos * frame_length
