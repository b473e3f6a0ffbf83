"""What one API of the Kafka protocol looks like to somebody who passes it on: the row type of `api_table`."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from kafka_quotas.wire.codec.skip import Layout

NEVER: Final = 0x7FFF
"""A version that no message has, for "flexible from version" of messages that never became flexible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottleLayout:
    """Where `throttle_time_ms` is from version `since` on: behind the fields of `before`, from the body's start."""

    since: int
    before: Layout


class BrokerListKind(Enum):
    """How the addresses of brokers are held in a response."""

    SINGLE = "one broker, its fields among those of the body"
    ARRAY = "an array"
    COMPACT_ARRAY = "a compact array"
    TAGGED = "a compact array that is tagged field 0 of the body"


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressLayout:
    """Where broker addresses are from version `since` on.

    `before` leads from the body's start to the list (to the tag section if it is tagged); in each element
    `element_before` leads to the node id, which host and port follow; `element_after` leads to the next one.
    """

    since: int
    kind: BrokerListKind
    before: Layout
    element_before: Layout
    element_after: Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One API: the versions we can handle and what has to be known to patch its responses.

    `min_version` to `max_version` is what we handle; versions below `schema_since` come from definitions older than
    Kafka 4's or are supplied by hand. `request_flexible_since` and `response_header_v1_since` are the versions from
    which headers carry tagged fields.
    """

    key: int
    name: str
    min_version: int
    schema_since: int
    max_version: int
    by_hand: bool = False
    request_flexible_since: int = NEVER
    response_header_v1_since: int = NEVER
    throttle: tuple[ThrottleLayout, ...] = ()
    addresses: tuple[AddressLayout, ...] = ()

    def handles(self, version: int) -> bool:
        """Return whether this version is one that we can patch."""
        return self.min_version <= version <= self.max_version

    def throttle_layout(self, version: int) -> ThrottleLayout | None:
        """Return where the throttle time is in this version, or None if it has none or is beyond what we handle."""
        if version > self.max_version:
            return None
        return next((layout for layout in reversed(self.throttle) if version >= layout.since), None)

    def address_layout(self, version: int) -> AddressLayout | None:
        """Return where broker addresses are in this version, or None if it has none or is beyond what we handle."""
        if version > self.max_version:
            return None
        return next((layout for layout in reversed(self.addresses) if version >= layout.since), None)
