"""Requests that we send ourselves: their interface, their frames, and those that begin a connection.

A request knows the versions that it supports, and the broker's ApiVersions decide which of them is used.

**Source:** KIP-35, KIP-43, KIP-152, KIP-368, KIP-482, KIP-511; `RequestHeader`, `ResponseHeader`, and
`ApiVersionsRequest.json`, `SaslHandshakeRequest.json`, `SaslAuthenticateRequest.json`, Kafka 4.1.
"""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeVar, cast

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.wire.codec.encoding import framed
from kafka_quotas.wire.codec.fields import INT16, Field, FieldReader, FieldWriter, fields_of, read_fields, write_fields
from kafka_quotas.wire.protocol.api_table import API_TABLE
from kafka_quotas.wire.protocol.header import has_header_tags

Answer = TypeVar("Answer")
_HEADER: Final = Struct(">hhi")  # the API, its version, the correlation id
_CORRELATION_ID_BYTES: Final = 4


class VersionRange(NamedTuple):
    """The lowest and the highest version of a request that one side supports."""

    lowest: int
    highest: int


class ClientRequest(ABC, Generic[Answer]):
    """A request and the reader of its response."""

    __slots__ = ()

    api_key: ClassVar[ApiKey]
    versions: ClassVar[VersionRange]
    broker_since: ClassVar[str]
    """The first release of Kafka whose brokers support a version of `versions`."""

    fields: ClassVar[tuple[Field, ...]]
    answer_fields: ClassVar[tuple[Field, ...]]

    @property
    def name(self) -> str:
        """The name of the request in messages."""
        return API_TABLE[self.api_key].name

    def values(self) -> Iterable[Any]:
        """Return the values of the request's named fields, by default its own in their order."""
        return [getattr(self, each.name) for each in dataclasses.fields(cast("Any", self))]

    @abstractmethod
    def answer(self, *values: Any) -> Answer:
        """Return the answer from the values of the response's named fields."""

    def write(self, writer: FieldWriter, version: int) -> None:
        """Append the body of the request."""
        write_fields(self.fields, self.values(), writer, version)

    def read(self, reader: FieldReader, version: int) -> Answer:
        """Return the response, or raise a `ProtocolError` for bytes that are none."""
        return self.answer(*read_fields(self.answer_fields, reader, version))

    def asks_to_try_again(self, answer: Answer) -> bool:
        """Return whether the broker did nothing for a temporary reason."""
        return False


def version_of(request: ClientRequest[Answer], offered: Mapping[int, VersionRange]) -> int | None:
    """Return the highest version that both sides know, or None."""
    theirs = offered.get(request.api_key)
    if theirs is None:
        return None
    version = min(request.versions.highest, theirs.highest)
    return version if version >= max(request.versions.lowest, theirs.lowest) else None


def request_frame(request: ClientRequest[Any], version: int, *, correlation_id: int, client_id: str | None) -> bytes:
    """Return the whole frame of a request, length field included."""
    header = FieldWriter(flexible=False)
    header.raw(_HEADER.pack(request.api_key, version, correlation_id))
    header.string(client_id)
    body = FieldWriter(flexible=API_TABLE[request.api_key].is_flexible(version))
    body.tags()  # the header's own, in versions whose header has any
    request.write(body, version)
    return framed(header.content() + body.content())


def read_answer(request: ClientRequest[Answer], version: int, content: bytes, *, correlation_id: int) -> Answer:
    """Return the response in the content of a frame (after its length field).

    Raises:
        ProtocolError: The response is to another request, or can't be read.
    """
    if content[:_CORRELATION_ID_BYTES] != correlation_id.to_bytes(_CORRELATION_ID_BYTES, "big"):
        raise ProtocolError("the answer belongs to another request")
    is_flexible = API_TABLE[request.api_key].is_flexible(version)
    reader = FieldReader(content, offset=_CORRELATION_ID_BYTES, flexible=is_flexible)
    if has_header_tags(request.api_key, version):
        reader.tags()
    return request.read(reader, version)


class OfferedVersions(NamedTuple):
    """The versions that a broker supports, by API key.

    With an error there may be none.
    """

    error_code: int
    ranges: Mapping[int, VersionRange]


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRequest(ClientRequest[OfferedVersions]):
    """A request for the broker's versions that names the client software."""

    software_name: str = "kafka-quotas"
    software_version: str = "0"

    api_key = ApiKey.API_VERSIONS
    versions = VersionRange(0, 3)
    broker_since = "0.10"
    fields = fields_of("name:text@3+ version:text@3+")
    answer_fields = fields_of("keys[key:int16 lowest:int16 highest:int16] _:int32@1+")

    def read(self, reader: FieldReader, version: int) -> OfferedVersions:
        error_code: int = reader.fixed(INT16)
        # A response with an error has the form of version 0, whatever was asked (KIP-511).
        return OfferedVersions(error_code, {} if error_code else ClientRequest.read(self, reader, version).ranges)

    def answer(self, *values: Any) -> OfferedVersions:
        return OfferedVersions(0, {key: VersionRange(*versions) for key, *versions in values[0]})


@dataclass(frozen=True, slots=True, kw_only=True)
class Mechanisms:
    """Whether the broker accepts the mechanism (error code 0), and the mechanisms it supports."""

    error_code: int
    offered: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HandshakeRequest(ClientRequest[Mechanisms]):
    """A request to log in by a mechanism.

    After version 0 its tokens travel in raw frames.
    """

    mechanism: str

    api_key = ApiKey.SASL_HANDSHAKE
    versions = VersionRange(0, 1)
    broker_since = "0.10"
    fields = fields_of("mechanism:text")
    answer_fields = fields_of("code:int16 offered:[text]")

    def answer(self, *values: Any) -> Mechanisms:
        return Mechanisms(error_code=values[0], offered=tuple(values[1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerToken:
    """The broker's token in response to one, or an error."""

    error_code: int
    error_message: str | None
    token: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticateRequest(ClientRequest[ServerToken]):
    """A request with one token of the mechanism."""

    token: bytes

    api_key = ApiKey.SASL_AUTHENTICATE
    versions = VersionRange(0, 2)
    broker_since = "1.0"
    fields = fields_of("token:bytes")
    answer_fields = fields_of("code:int16 message:text? token:bytes _:int64@1+")

    def answer(self, *values: Any) -> ServerToken:
        return ServerToken(error_code=values[0], error_message=values[1], token=values[2])
