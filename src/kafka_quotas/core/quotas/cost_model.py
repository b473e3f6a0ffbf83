"""What requests cost a broker in thread time, estimated from outside: so much per request of an API, so much per byte.

A broker's thread time can't be seen by anybody else. This stands in for it: a figure per API for the time on an I/O
thread, one per byte of the request for reading and handling it, one per byte of the response for sending it on a
network thread. Everything that is computed with it is an estimate and is called so.

Invariants: figures are 0 or more; an API that the model does not name costs what `other` says.
**Source:** KIP-124 for what is counted (I/O and network thread time together).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCost:
    """What one API costs: nanoseconds per request, per byte of the request, and per byte of the response."""

    request_nanos: float
    request_byte_nanos: float = 0.0
    response_byte_nanos: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CostModel:
    """The costs by API key. `source` says where the figures come from."""

    source: str
    other: ApiCost
    apis: Mapping[int, ApiCost] = field(default_factory=dict)

    def request_nanos(self, api_key: int, frame_length: int) -> float:
        """The estimated time in ns that a request of so many bytes takes on an I/O thread."""
        cost = self.apis.get(api_key, self.other)
        return cost.request_nanos + cost.request_byte_nanos * frame_length

    def response_nanos(self, api_key: int, frame_length: int) -> float:
        """The estimated time in ns that sending a response of so many bytes takes on a network thread."""
        return self.apis.get(api_key, self.other).response_byte_nanos * frame_length
