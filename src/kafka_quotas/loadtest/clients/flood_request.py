"""What one request of a flood looks like: made once, only its correlation id differs from one to the next."""

from struct import Struct
from typing import Final, NamedTuple

from kafka_quotas.core.errors import UsageError
from kafka_quotas.loadtest.clients.fetch_request import VERSION as FETCH_VERSION
from kafka_quotas.loadtest.clients.fetch_request import FetchLimits, fetch_frame
from kafka_quotas.loadtest.workload import RequestFlood
from kafka_quotas.wire.client_request import request_frame
from kafka_quotas.wire.cost_probe import Target, produce_probe, small_probes, topic_check
from kafka_quotas.wire.fetch_request import FETCH

_CORRELATION_ID: Final = Struct(">i")
_CORRELATION_ID_AT: Final = 8
_NOWHERE: Final = Target("", 0, "")
NEEDS_TOPIC: Final = frozenset({"Produce", "Fetch", "ListOffsets", "OffsetCommit", "OffsetFetch", "CreateTopics"})
"""The APIs whose requests are about a topic."""
FLOOD_APIS: Final = tuple(
    sorted(("Produce", "Fetch", "CreateTopics", *(probe.name for probe in small_probes(_NOWHERE))))
)
"""The APIs that floods can be made of, by Kafka's names."""


class FloodFrame(NamedTuple):
    """A request of a flood: its API and version, and its frame."""

    api_key: int
    version: int
    frame: bytearray

    def numbered(self, correlation_id: int) -> bytes:
        """The frame with a correlation id."""
        _CORRELATION_ID.pack_into(self.frame, _CORRELATION_ID_AT, correlation_id)
        return bytes(self.frame)


def check_flood(flood: RequestFlood, *, topic: str) -> None:
    """Nothing. Raises `UsageError` for an API that floods can't be made of, or that needs a topic and has none."""
    if flood.api not in FLOOD_APIS:
        raise UsageError(f"no flood of {flood.api} requests is known", hint=f"one of {', '.join(FLOOD_APIS)}")
    if flood.api in NEEDS_TOPIC and not topic:
        raise UsageError(f"a flood of {flood.api} requests needs a topic", hint="name one with --topic")
    if flood.unauthorised and not topic:
        raise UsageError(
            "a flood of unauthorised requests needs a topic", hint="--topic names one that the client may not touch"
        )


def flood_frame(
    flood: RequestFlood, *, client_id: str | None, topic: str, end_offset: int, records: bytes
) -> FloodFrame:
    """One request of the flood; `records` is the batch that a Produce brings, a Fetch starts at `end_offset`."""
    if flood.api == "Fetch":
        limits = FetchLimits(max_wait_ms=flood.max_wait_ms, min_bytes=flood.min_bytes, max_bytes=flood.max_bytes)
        frame = fetch_frame(0, client_id=client_id, topic=topic, offsets={0: end_offset}, limits=limits)
        return FloodFrame(FETCH, FETCH_VERSION, bytearray(frame))
    target = Target(topic, end_offset, "kafka-quotas-flood")
    if flood.api == "Produce":
        probe = produce_probe(target, records)
    elif flood.api == "CreateTopics":
        probe = topic_check(target)
    else:
        probe = next(each for each in small_probes(target) if each.name == flood.api)
    version = probe.versions.highest
    frame = request_frame(probe, version, correlation_id=0, client_id=client_id)
    return FloodFrame(probe.api_key, version, bytearray(frame))
