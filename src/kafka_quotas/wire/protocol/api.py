"""One API of the Kafka protocol as a proxy needs to know it, and the text of `api_table`.

    RENEW_DELEGATION_TOKEN 0-2 flexible 2, 0 THROTTLE 10
    FIND_COORDINATOR 0-6 flexible 3, 1 THROTTLE, 0 SINGLE 2, 1 SINGLE 6 s, 3 SINGLE 6 s, 4 COMPACT_ARRAY 4 | s | 2 s t

A row has the versions of an API, the first flexible one, and whether the API is internal. An entry is for the versions
from its first number on: the place of the throttle time, or that of broker addresses, whose three layouts are those of
`AddressLayout`. A layout has sizes, `s` for a string, `b` for bytes, `t` for tags, and arrays in brackets.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.wire.codec.encoding import CLASSIC, COMPACT, Encoding
from kafka_quotas.wire.codec.skip import Layout, Skip, tags

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


_ROW: Final = re.compile(r"(\w+) (\d+)-(\d+)(?: flexible (\d+))?( internal)?")


def apis_of(table: str) -> Iterator[Api]:
    """Yield the APIs of a table."""
    for row in re.split(r"\n(?=\S)", table.strip()):
        head, *entries = re.split(r",\s+", row)
        match = _ROW.fullmatch(head)
        assert match is not None, head
        name, oldest, newest, flexible, internal = match.groups()
        flexible_since = NEVER if flexible is None else int(flexible)
        throttle: list[ThrottleLayout] = []
        addresses: list[AddressLayout] = []
        for entry in entries:
            first, kind, rest = (*entry.split(" ", 2), "")[:3]
            since, form = int(first), COMPACT if int(first) >= flexible_since else CLASSIC
            before, element_before, element_after = (*(_layout(part, form) for part in rest.split("|")), (), ())[:3]
            if kind == "THROTTLE":
                throttle.append(ThrottleLayout(since=since, before=before))
            else:
                addresses.append(
                    AddressLayout(
                        since=since,
                        kind=BrokerListKind[kind],
                        before=before,
                        element_before=element_before,
                        element_after=element_after,
                    )
                )
        yield Api(
            key=ApiKey[name],
            min_version=int(oldest),
            max_version=int(newest),
            flexible_since=flexible_since,
            throttle=tuple(throttle),
            addresses=tuple(addresses),
            is_internal=internal is not None,
        )


def _layout(text: str, form: Encoding) -> Layout:
    named: dict[str, Skip] = {"s": form.string, "b": form.bytes_field, "t": tags}
    levels: list[list[int | Skip]] = [[]]
    for step in re.findall(r"\w+|[][]", text):
        if step == "[":
            levels.append([])
        elif step == "]":
            element = levels.pop()
            levels[-1].append(form.array(*element))
        else:
            levels[-1].append(named[step] if step in named else int(step))
    return tuple(levels[0])
