"""The addresses of brokers in responses: reading them, and replacing them in a copy of the response.

A client connects to the addresses that a broker returns, so a proxy replaces them in every response that holds some:
Metadata, FindCoordinator, DescribeCluster, Produce from version 10, ShareFetch and ShareAcknowledge. It leaves out
those of controllers, to which no listener leads: DescribeQuorum from version 2. It copies all other bytes, including
unknown tagged fields.

Invariant: `rewrite_addresses` with a translation that changes nothing returns the same frame.

**Source:** the message definitions, see `api_table`; KIP-951 for the endpoints of new leaders; KIP-482 and
`ByteUtils.readUnsignedVarint`, Kafka 4.3, for the padding of a part whose length was sent already.
"""

from collections.abc import Callable, Generator
from typing import Final, NamedTuple, TypeAlias

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.wire.codec.encoding import COMPACT, FRAME_LENGTH_BYTES, Encoding, framed
from kafka_quotas.wire.codec.skip import (
    SLICE,
    Buffer,
    compact_array_count,
    compact_string,
    encode_unsigned_varint,
    finished,
    read_int32,
    read_unsigned_varint,
    skip,
    skipping,
)
from kafka_quotas.wire.protocol.api import AddressLayout, BrokerListKind
from kafka_quotas.wire.protocol.api_table import API_TABLE
from kafka_quotas.wire.protocol.header import whole_response_body

Translate: TypeAlias = Callable[[int, str, int], tuple[str, int]]
"""(node id, host, port) -> (host, port) that the client shall see."""

MAX_PORT: Final = 65_535
MAX_BROKERS: Final = 100_000
"""Most addresses that are read in one response. A client can ask for the coordinators of any number of groups."""

_new: Final = tuple.__new__
"""Makes an `AddressSpan` in half the time that its own constructor takes."""

_LAYOUTS: Final[dict[tuple[int, int], AddressLayout]] = {
    (key, version): layout
    for key, api in API_TABLE.items()
    for version in range(api.min_version, api.max_version + 1)
    if (layout := api.address_layout(version)) is not None
}


class AddressSpan(NamedTuple):
    """One broker in a frame."""

    node_id: int
    start: int
    """The offset of the host's length."""
    host: str
    port_start: int
    """The offset of the port."""
    port: int


class BrokerList(NamedTuple):
    """All brokers of a frame."""

    places: list[AddressSpan]
    size_start: int
    """The offset of the size of `content_start:content_end` in a tagged field."""
    content_start: int
    content_end: int


def rewrite_addresses(api_key: int, api_version: int, frame: Buffer, translate: Translate) -> bytes:
    """Return the whole response with translated broker addresses and corrected length fields.

    Placeholders (node -1, no host, no real port) stay unchanged.
    """
    return finished(rewriting(api_key, api_version, frame, translate))


def rewriting(api_key: int, api_version: int, frame: Buffer, translate: Translate) -> Generator[None, None, bytes]:
    """Do what `rewrite_addresses` does, some brokers at a time."""
    layout = _LAYOUTS.get((api_key, api_version))
    if layout is None:
        return bytes(frame)
    end = len(frame)
    form = API_TABLE[api_key].encoding(api_version)
    offset = yield from skipping(layout.before, frame, whole_response_body(api_key, api_version, frame), end)
    if layout.kind is BrokerListKind.EMPTIED:
        return _without_endpoints(layout, frame, offset)
    if layout.kind is BrokerListKind.TAGGED:
        found = tagged_list(api_key, api_version, frame, offset)
        # Most responses that may name brokers name none: they pass as they came.
        if found is None or not found.places:
            return bytes(frame)
        content = replaced_list(frame, found, translate)
        # A tagged field carries its own size (KIP-482), which changes with the addresses.
        size = encode_unsigned_varint(len(content))
        before, after = frame[FRAME_LENGTH_BYTES : found.size_start], frame[found.content_end :]
        return framed(b"".join((before, size, content, after)))
    # FindCoordinator names one coordinator up to version 3, and a list of them later (KIP-699).
    count = 1
    if layout.kind is not BrokerListKind.SINGLE:
        count, offset = _broker_count(form.array_count(frame, offset, end))
    pieces, copied, known = bytearray(), FRAME_LENGTH_BYTES, dict[bytes, bytes]()
    # Thousands of coordinators are few brokers: each is translated once.
    for index in range(count):
        if index % SLICE == SLICE - 1:
            yield
        place, offset = _place(layout, frame, offset, end, form=form)
        if place is not None:
            pieces += frame[copied : place.start]
            copied = place.port_start + 4
            address = bytes(frame[place.start - 4 : copied])
            if address not in known:
                host, port = translate(place.node_id, place.host, place.port)
                known[address] = form.encoded_text(host) + port.to_bytes(4, "big")
            pieces += known[address]
    pieces += frame[copied:]
    return framed(bytes(pieces))


def _broker_count(counted: tuple[int, int]) -> tuple[int, int]:
    if counted[0] > MAX_BROKERS:
        error = ProtocolError(f"a response names {counted[0]} brokers where {MAX_BROKERS} may be")
        error.sender = "client"  # no cluster has so many brokers: the request named so many groups
        raise error
    return counted


def replaced_list(frame: Buffer, found: BrokerList, translate: Translate, form: Encoding = COMPACT) -> bytes:
    """Return the content of a list of brokers with every address translated."""
    pieces: list[Buffer] = []
    copied = found.content_start
    # Between the addresses all bytes are copied: racks, other fields and unknown tags.
    for place in found.places:
        host, port = translate(place.node_id, place.host, place.port)
        pieces += (frame[copied : place.start], form.encoded_text(host), port.to_bytes(4, "big"))
        copied = place.port_start + 4
    pieces.append(frame[copied : found.content_end])
    return b"".join(pieces)


def tagged_list(api_key: int, api_version: int, buffer: Buffer, offset: int) -> BrokerList | None:
    """Return the brokers in the tag section at `offset`, which ends the buffer, or None if it holds none."""
    layout = _LAYOUTS.get((api_key, api_version))
    if layout is None or layout.kind is not BrokerListKind.TAGGED:
        return None
    end = len(buffer)
    tag_count, offset = read_unsigned_varint(buffer, offset, end)
    # Brokers are named only if a partition's leader has moved (KIP-951).
    if not tag_count:
        return None
    # Tags are in ascending order (KIP-482), so 0 is the first or absent.
    tag, size_start = read_unsigned_varint(buffer, offset, end)
    if tag:
        return None
    size, start = read_unsigned_varint(buffer, size_start, end)
    if start + size > end:
        raise ProtocolError("a tagged field ends behind its response")
    counted = compact_array_count(buffer, start, start + size)
    places = _places(layout, buffer, counted, start + size, form=COMPACT)
    return BrokerList(places, size_start, start, start + size)


def untagged_list(api_key: int, api_version: int, buffer: Buffer, offset: int) -> BrokerList:
    """Return the brokers of the compact array at `offset`, in a version that has such an array."""
    layout = _LAYOUTS[api_key, api_version]
    end = len(buffer)
    count, start = counted = compact_array_count(buffer, offset, end)
    places = _places(layout, buffer, counted, end, form=COMPACT)
    # Node id, host and port of each broker, and what the version has around them.
    element = (*layout.element_before, 4, compact_string, 4, *layout.element_after)
    content_end = skip(element * count, buffer, start, end)
    if content_end > end:
        raise ProtocolError("the brokers end behind their response")
    return BrokerList(places, offset, start, content_end)


def _without_endpoints(layout: AddressLayout, frame: Buffer, nodes: int) -> bytes:
    end, copied, pieces = len(frame), FRAME_LENGTH_BYTES, list[Buffer]()
    count, offset = _broker_count(compact_array_count(frame, nodes, end))
    for _ in range(count):
        offset = skip(layout.element_before, frame, offset, end)
        pieces += (frame[copied:offset], COMPACT.encoded_count(0))
        copied = skip(layout.element_after[:1], frame, offset, end)
        offset = skip(layout.element_after[1:], frame, copied, end)
    return framed(b"".join((*pieces, frame[copied:])))


def _places(
    layout: AddressLayout, frame: Buffer, counted: tuple[int, int], end: int, *, form: Encoding
) -> list[AddressSpan]:
    count, offset = _broker_count(counted)
    places: list[AddressSpan] = []
    for _ in range(count):
        place, offset = _place(layout, frame, offset, end, form=form)
        if place is not None:
            places.append(place)
    return places


def _place(
    layout: AddressLayout, frame: Buffer, offset: int, end: int, *, form: Encoding
) -> tuple[AddressSpan | None, int]:
    """Return the place of a broker's address, None for a placeholder, and the offset after it."""
    if layout.element_before:
        offset = skip(layout.element_before, frame, offset, end)
    node_id = read_int32(frame, offset, end)
    host_start, host_end = form.string_span(frame, offset + 4, end)
    port_start = max(host_start, host_end)
    port = read_int32(frame, port_start, end)
    place = None
    # A broker answers with placeholders if it knows no coordinator or leader: there is no address to replace.
    if node_id >= 0 and host_end > host_start and 0 < port <= MAX_PORT:
        host = bytes(frame[host_start:host_end]).decode("utf-8", "replace")
        place = _new(AddressSpan, (node_id, offset + 4, host, port_start, port))
    offset = port_start + 4
    if layout.element_after:
        offset = skip(layout.element_after, frame, offset, end)
    return place, offset


PADDING_TAG: Final = 9999
"""A tagged field that no message defines, so that readers skip it (KIP-482)."""


def padded_tags(count: int, fields: bytes, length: int) -> bytes:
    """Return a tag section of `length` bytes: `count` encoded tagged fields and one more that fills it.

    Three bytes more than those of the fields are always enough.
    """
    head = encode_unsigned_varint(count + 1) + fields
    # The padding comes last, and tags have to be in ascending order.
    tag = encode_unsigned_varint(max(PADDING_TAG, _last_tag(fields) + 1))
    gap = length - len(head) - len(tag)
    size_bytes = len(encode_unsigned_varint(max(gap - 1, 0)))
    if gap < size_bytes:
        raise ProtocolError("the addresses in a response can't be replaced")
    return head + tag + lengthened_varint(gap - size_bytes, size_bytes) + bytes(gap - size_bytes)


def lengthened_varint(value: int, size: int) -> bytes:
    """Return a varint of `size` bytes, at least as many as the value needs."""
    # Readers take groups of zeros at the end, up to five bytes in all.
    groups = [value >> 7 * index & 0x7F | 0x80 for index in range(size)]
    groups[-1] &= 0x7F
    return bytes(groups)


def _last_tag(fields: bytes) -> int:
    tag, offset = -1, 0
    # Fields are in ascending order of their tags, so the last one counts.
    while offset < len(fields):
        tag, offset = read_unsigned_varint(fields, offset, len(fields))
        size, offset = read_unsigned_varint(fields, offset, len(fields))
        offset += size
    return tag
