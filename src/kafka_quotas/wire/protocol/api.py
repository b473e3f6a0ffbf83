"""One API of the Kafka protocol as a proxy needs to know it: the row type of `api_table`."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.wire.codec.encoding import CLASSIC, COMPACT, Encoding
from kafka_quotas.wire.codec.skip import Layout

NEVER: Final = 0x7FFF
"""A version that no message has, for "flexible from version" of messages that never became flexible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottleLayout:
    """The place of `throttle_time_ms` from version `since` on."""

    since: int
    before: Layout = ()
    """The fields before it, from the body's start."""


class BrokerListKind(Enum):
    """The encodings of broker addresses in a response."""

    SINGLE = "one broker, its fields among those of the body"
    ARRAY = "an array"
    COMPACT_ARRAY = "a compact array"
    TAGGED = "a compact array that is tagged field 0 of the body"
    EMPTIED = "an array of nodes, each with a list of endpoints, which no listener of ours can replace"


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressLayout:
    """The place of broker addresses from version `since` on."""

    since: int
    kind: BrokerListKind
    before: Layout = ()
    """The fields from the body's start to the list, or to the tag section of a tagged list."""
    element_before: Layout = ()
    """The fields of an element before the node id, which host and port follow."""
    element_after: Layout = ()
    """The fields after the port, up to the next element; of an `EMPTIED` list those from the endpoints on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One API: its supported versions and the layouts that patching its responses needs."""

    key: ApiKey
    min_version: int = 0
    max_version: int
    flexible_since: int = NEVER
    """The first version whose headers have tagged fields; ApiVersions' response has none (KIP-511)."""
    throttle: tuple[ThrottleLayout, ...] = ()
    addresses: tuple[AddressLayout, ...] = ()
    is_internal: bool = False
    """Whether only brokers and controllers speak it, so that no client may send it."""

    @property
    def name(self) -> str:
        """The name as in Kafka's message definitions."""
        return self.key.name.title().replace("_", "")

    def is_flexible(self, version: int) -> bool:
        """Return whether a version has tagged fields and compact lengths."""
        return version >= self.flexible_since

    def encoding(self, version: int) -> Encoding:
        """Return the encoding of a version's fields."""
        return COMPACT if version >= self.flexible_since else CLASSIC

    def handles(self, version: int) -> bool:
        """Return whether we can patch this version, or know that nothing in it has to be patched."""
        return self.min_version <= version <= self.max_version and not self.is_internal

    def throttle_layout(self, version: int) -> ThrottleLayout | None:
        """Return the place of the throttle time in this version, or None if it has none or is too new."""
        if version > self.max_version:
            return None
        return next((layout for layout in reversed(self.throttle) if version >= layout.since), None)

    def address_layout(self, version: int) -> AddressLayout | None:
        """Return the place of broker addresses in this version, or None if it has none or is too new."""
        if version > self.max_version:
            return None
        return next((layout for layout in reversed(self.addresses) if version >= layout.since), None)
