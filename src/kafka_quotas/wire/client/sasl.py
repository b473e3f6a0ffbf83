"""A client's SaslHandshake and SaslAuthenticate requests.

**Source:** KIP-43, KIP-152, KIP-368; `SaslHandshakeRequest.json`, `SaslAuthenticateRequest.json`, Kafka 4.1.
"""

from dataclasses import dataclass
from typing import ClassVar, Final

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.wire.client.request import ClientRequest, VersionRange
from kafka_quotas.wire.codec.reader import FieldReader
from kafka_quotas.wire.codec.writer import FieldWriter

_SESSION_LIFETIME_SINCE: Final = 1


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

    api_key: ClassVar[ApiKey] = ApiKey.SASL_HANDSHAKE
    versions: ClassVar[VersionRange] = VersionRange(0, 1)
    broker_since: ClassVar[str] = "0.10"

    def write(self, writer: FieldWriter, version: int) -> None:
        writer.string(self.mechanism)

    def read(self, reader: FieldReader, version: int) -> Mechanisms:
        error_code = reader.int16()
        return Mechanisms(error_code=error_code, offered=tuple(reader.text() for _ in range(reader.count())))


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

    api_key: ClassVar[ApiKey] = ApiKey.SASL_AUTHENTICATE
    versions: ClassVar[VersionRange] = VersionRange(0, 2)
    broker_since: ClassVar[str] = "1.0"

    def write(self, writer: FieldWriter, version: int) -> None:
        writer.byte_string(self.token)
        writer.tags()

    def read(self, reader: FieldReader, version: int) -> ServerToken:
        error_code, error_message, token = reader.int16(), reader.string(), reader.byte_string()
        if version >= _SESSION_LIFETIME_SINCE:
            reader.int64()
        reader.tags()
        return ServerToken(error_code=error_code, error_message=error_message, token=token)
