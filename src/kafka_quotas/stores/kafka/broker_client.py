"""A client of one broker: its connection, in plaintext or TLS, the versions it settles on, and the login.

Contract: the client connects at the first request and after each failure. Any number of threads may use it, one request
at a time. A network failure is an `OSError` and drops the connection, bytes that are not Kafka's are a `ProtocolError`,
and an error that another attempt would not mend is a `StoreError`. Each exchange of frames has a deadline, and `abort`
ends a running one from another thread.

Of Kafka's client properties `security.protocol` is PLAINTEXT (default), SSL, SASL_PLAINTEXT or SASL_SSL, `client.id`
the client-id of the requests; `security.tls` and `security.sasl` list the others. One that can't be honoured is refused
by name if leaving it out would change who is trusted or asked. Those that only tune a Java client are ignored.

**Source:** KIP-43, KIP-152, KIP-511; `SaslClientAuthenticator`, Kafka 4.1.
"""

import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kafka_quotas.core.errors import ProtocolError, StoreError, StoreRefusedError, StoreUnreachableError, UsageError
from kafka_quotas.stores.address import ServerAddress, network_reason
from kafka_quotas.wire.client.request import (
    AuthenticateRequest,
    ClientRequest,
    HandshakeRequest,
    VersionRange,
    VersionRequest,
    read_answer,
    request_frame,
    version_of,
)
from kafka_quotas.wire.codec.encoding import FRAME_LENGTH_BYTES, checked_frame_length
from kafka_quotas.wire.protocol.api_table import ErrorCode

if TYPE_CHECKING:
    import ssl

    from kafka_quotas.stores.security.sasl import SaslMechanism


_USUAL: Mapping[str, tuple[str, ...]] = {
    "config.providers": (),
    "security.providers": (),
    "ssl.engine.factory.class": (),
    "ssl.provider": (),
    "ssl.cipher.suites": (),
    "ssl.keymanager.algorithm": ("SunX509", "PKIX"),
    "ssl.trustmanager.algorithm": ("PKIX", "SunX509"),
    "sasl.login.class": (),
    "sasl.client.callback.handler.class": ("software.amazon.msk.auth.iam.IAMClientCallbackHandler",),
}
"""Properties that are not supported, with the values that are equivalent to leaving them out."""
_PREFIXES = {"ssl.": ("SSL", "SASL_SSL"), "sasl.": ("SASL_PLAINTEXT", "SASL_SSL")}


_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaAccess:
    """How to connect to the brokers of a cluster."""

    client_id: str | None
    tls: "ssl.SSLContext | None" = None
    login: "SaslMechanism | None" = None


def kafka_access(properties: Mapping[str, str]) -> KafkaAccess:
    """Return the access that client properties ask for."""
    protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in _PROTOCOLS:
        raise UsageError(f"security.protocol: {protocol} is unknown", hint=f"it is one of {', '.join(_PROTOCOLS)}")
    _refuse_unsupported(properties, protocol=protocol)
    login, tls = None, None
    if protocol.startswith("SASL_"):
        from kafka_quotas.stores.security.sasl import sasl_login  # noqa: PLC0415 - most clusters need none

        login = sasl_login(properties)
    if protocol.endswith("SSL"):
        from kafka_quotas.stores.security.tls import tls_context  # noqa: PLC0415 - loads ssl

        tls = tls_context(properties)
    return KafkaAccess(client_id=properties.get("client.id", "").strip() or "kafka-quotas", tls=tls, login=login)


def _refuse_unsupported(properties: Mapping[str, str], *, protocol: str) -> None:
    for name, usual in _USUAL.items():
        value = properties.get(name, "").strip()
        protocols = next((found for prefix, found in _PREFIXES.items() if name.startswith(prefix)), (protocol,))
        if value and value not in usual and protocol in protocols:
            hint = f"it may be {' or '.join(usual)}" if usual else "leave it out, or use Kafka's own tools"
            raise UsageError(f"{name} is not supported", hint=hint)


LARGEST_RESPONSE: Final = 256 * 1024 * 1024
"""Bytes, of which a hundred thousand entities take about 10 MB."""
_PIECE: Final = 1024 * 1024
_HTTP_S: Final = 1.0
_TLS_ALERT: Final = b"\x15\x03"
_LARGEST_CORRELATION_ID: Final = 2**31 - 1
_TLS_FAILED: Final = "SSL_AUTHENTICATION_FAILED"
_PLAINTEXT_HINT: Final = (
    "the port most likely speaks plaintext: give the TLS port, or set security.protocol to PLAINTEXT or SASL_PLAINTEXT"
)
_NOT_TLS: Final = ("WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")
Answer = TypeVar("Answer")


class NoConnectionError(OSError):
    """A connection that could not be made, with the reason as text."""


class ShutOutError(ConnectionError):
    """The end of a fresh connection without an answer, by a broker that is busy or at a wrong port."""

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class BrokerRefusedError(StoreRefusedError):
    """A refusal by the broker or this client, with Kafka's name of the error as `code`."""

    def __init__(self, message: str, *, code: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.code = code


class LostAnswerError(StoreUnreachableError):
    """A request that was sent and not answered."""


class BrokerConnection:
    """An open connection to a broker, in plaintext or TLS."""

    def __init__(
        self, address: ServerAddress, *, client_id: str | None, deadline_s: float, tls: "ssl.SSLContext | None" = None
    ) -> None:
        """Connect to the broker by the deadline, with a TLS handshake where `tls` is not None."""
        host, port = address
        place: Any = host.encode() if host.isascii() else host  # a text would load the tables of international names
        try:
            self._socket = socket.create_connection((place, port), timeout=_left(deadline_s))
        except OSError as error:
            raise NoConnectionError(network_reason(error)) from error
        except UnicodeError as error:
            raise NoConnectionError("not a name that a host can have") from error
        self._client_id = client_id
        self._server = str(address)
        self._correlation_id = 0
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                self._socket = _wrapped(self._socket, tls=tls, address=address)
        except BaseException:
            self._socket.close()
            raise

    def exchange(
        self, request: ClientRequest[Answer], version: int, *, deadline_s: float, begin_deadline_s: float | None = None
    ) -> Answer:
        """Return the answer to a request, which begins to arrive and is whole by the two deadlines."""
        self._correlation_id = self._correlation_id % _LARGEST_CORRELATION_ID + 1
        frame = request_frame(request, version, correlation_id=self._correlation_id, client_id=self._client_id)
        content = self._exchanged(frame, deadline_s, begin_deadline_s)
        return read_answer(request, version, content, correlation_id=self._correlation_id)

    def exchange_raw(self, token: bytes, *, deadline_s: float) -> bytes:
        """Send a token in a raw frame and return the token that answers it."""
        return self._exchanged(len(token).to_bytes(FRAME_LENGTH_BYTES, "big") + token, deadline_s)

    def speaks_http(self) -> bool:
        """Return whether a server that is silent was waiting for the end of a line of HTTP.

        The connection is unusable afterwards. A broker takes the line end for the length of a frame that is too large.
        """
        with suppress(OSError):
            self._socket.settimeout(_HTTP_S)
            self._socket.sendall(b"\r\n\r\n")
            return self._socket.recv(_PIECE).startswith((b"HTTP/", b"<"))
        return False

    def abort(self) -> None:
        """End an exchange in another thread with an error."""
        with suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # below TLS, whose state is the other thread's

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _exchanged(self, frame: bytes, deadline_s: float, begin_deadline_s: float | None = None) -> bytes:
        begin_deadline_s = deadline_s if begin_deadline_s is None else min(deadline_s, begin_deadline_s)
        self._socket.settimeout(_left(begin_deadline_s))
        self._socket.sendall(frame)
        field = self._received(FRAME_LENGTH_BYTES, begin_deadline_s)
        # A TLS server answers plaintext by an alert record, whose first bytes are no length of a frame.
        if field.startswith(_TLS_ALERT):
            raise BrokerRefusedError(
                f"{self._server} speaks TLS, and was spoken to in plaintext",
                code=_TLS_FAILED,
                hint="set security.protocol to SSL or SASL_SSL in the file named with --command-config",
            )
        length = checked_frame_length(field, 0, limit=LARGEST_RESPONSE)
        if length is None:
            raise ProtocolError("a frame without a length")
        return self._received(length, deadline_s)

    def _received(self, count: int, deadline_s: float) -> bytes:
        pieces: list[bytes] = []
        while count:
            self._socket.settimeout(_left(deadline_s))
            piece = self._socket.recv(min(count, _PIECE))
            if not piece:
                raise ConnectionAbortedError("the connection was closed")
            pieces.append(piece)
            count -= len(piece)
        return b"".join(pieces)


def _wrapped(plain: socket.socket, *, tls: "ssl.SSLContext", address: ServerAddress) -> socket.socket:
    import ssl  # noqa: PLC0415 - most clusters need none

    try:
        return tls.wrap_socket(plain, server_hostname=address.host)
    except (ssl.SSLEOFError, ConnectionError) as error:
        raise ShutOutError(f"{address} ended the TLS handshake", hint=_PLAINTEXT_HINT) from error
    except ssl.SSLError as error:
        raise tls_refusal(error, server=str(address)) from error


def tls_refusal(error: "ssl.SSLError", *, server: str) -> BrokerRefusedError:
    """Return our error for one of TLS."""
    hint = "check the trust store and the security settings in the file named with --command-config"
    reason = error.reason or ""
    if reason in _NOT_TLS:
        hint = _PLAINTEXT_HINT
    elif reason.endswith("CERTIFICATE_REQUIRED"):
        hint = "the broker wants a certificate of the client: name it with ssl.keystore.location"
    shown = getattr(error, "verify_message", "") or reason.replace("_", " ").lower() or str(error)
    return BrokerRefusedError(f"no TLS connection to {server}: {shown}", code=_TLS_FAILED, hint=hint)


def _left(deadline_s: float) -> float:
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("timed out")
    return left_s


_CREDENTIALS_HINT: Final = "check security.protocol and sasl.* in the file named with --command-config"
_RAW_TOKENS_UNTIL: Final = 0
"""Last version of the handshake after which tokens travel in raw frames."""


_TLS_HINT: Final = "if the port speaks TLS, set security.protocol to SSL or SASL_SSL; or is it not Kafka's?"
_LOGIN_HINT: Final = "if the port wants a login, set security.protocol to SASL_PLAINTEXT or SASL_SSL, and sasl.*"


class BrokerClient:
    """Requests to one broker over one connection."""

    def __init__(self, address: ServerAddress, *, access: KafkaAccess, url: str) -> None:
        self._address = address
        self._server = str(address)
        self._url = url
        self._access = access
        self._lock = threading.Lock()
        self._channel: BrokerConnection | None = None
        self._offered: Mapping[int, VersionRange] = {}
        self._served = False
        self._closed = False

    def ask(
        self,
        request: ClientRequest[Answer],
        *,
        contact_deadline_s: float,
        deadline_s: float,
        begin_deadline_s: float | None = None,
    ) -> Answer:
        """Return the answer to a request.

        A connection that has to be made first is ready by `contact_deadline_s`. The answer begins to arrive by
        `begin_deadline_s` (None: `deadline_s`), and is whole by `deadline_s`.

        Raises:
            StoreRefusedError: The broker refuses the connection or does not know the request.
            StoreError: The broker's bytes are no answer.
            OSError: A failure that may pass.
        """
        with self._lock:
            try:
                channel = self._channel or self._opened(contact_deadline_s)
                version = self._version(request)
                answer = channel.exchange(request, version, deadline_s=deadline_s, begin_deadline_s=begin_deadline_s)
            except OSError as error:
                raise self._dropped(error) from error
            except ProtocolError as error:
                self._drop()
                hint = error.hint or "check that the port speaks Kafka"
                raise StoreError(f"{self._server} failed: {error.message}", hint=hint) from error
            except BaseException:  # nobody knows how far an interrupted exchange came
                self._drop()
                raise
            self._served = True
            return answer

    def close(self) -> None:
        """Close the connection, which ends a request in another thread with an error."""
        self._closed = True
        channel = self._channel
        if channel is not None:
            channel.abort()
        with self._lock:
            self._drop()

    def _opened(self, deadline_s: float) -> BrokerConnection:
        if self._closed:
            raise ConnectionError("closed")
        self._served = False
        self._channel = channel = BrokerConnection(
            self._address, client_id=self._access.client_id, deadline_s=deadline_s, tls=self._access.tls
        )
        self._offered = self._settled_versions(channel, deadline_s)
        if self._access.login is not None:
            self._log_in(channel, self._access.login, deadline_s)
        return channel

    def _log_in(self, channel: BrokerConnection, login: "SaslMechanism", deadline_s: float) -> None:
        def refused(problem: str, code: str = "SASL_AUTHENTICATION_FAILED") -> BrokerRefusedError:
            return BrokerRefusedError(f"{self._url} {problem}", code=code, hint=_CREDENTIALS_HINT)

        handshake = HandshakeRequest(mechanism=login.mechanism)
        version = self._version(handshake)
        answer = channel.exchange(handshake, version, deadline_s=deadline_s)
        if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            offered = ", ".join(answer.offered)
            raise refused(f"does not take this sasl.mechanism, but {offered}", "UNSUPPORTED_SASL_MECHANISM")
        if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            raise refused("takes no logins at this port", "ILLEGAL_SASL_STATE")
        if answer.error_code:
            raise refused(f"refused the login with error {answer.error_code}")
        tokens = login.begin(self._address.host)
        try:
            token = next(tokens)
            while True:
                if version <= _RAW_TOKENS_UNTIL:
                    reply = channel.exchange_raw(token, deadline_s=deadline_s)
                else:
                    request = AuthenticateRequest(token=token)
                    response = channel.exchange(request, self._version(request), deadline_s=deadline_s)
                    if response.error_code:
                        raise refused("refused the credentials")
                    reply = response.token
                token = tokens.send(reply)
        except StopIteration:
            return
        except ConnectionError as error:  # what a broker does with a false password after a handshake of version 0
            raise refused("refused the credentials") from error
        except ProtocolError as error:
            raise refused(f"refused the credentials: {error.message}") from error

    def _settled_versions(self, channel: BrokerConnection, deadline_s: float) -> Mapping[int, VersionRange]:
        request = VersionRequest()
        try:
            offered = channel.exchange(request, request.versions.highest, deadline_s=deadline_s)
            # A broker that does not know this version answers with an error in version 0, which all take (KIP-511).
            if offered.error_code == ErrorCode.UNSUPPORTED_VERSION:
                offered = channel.exchange(request, request.versions.lowest, deadline_s=deadline_s)
        except ConnectionError as error:
            # A TLS port ends the connection at the first plaintext bytes.
            raise ShutOutError(f"{self._server} closed the connection without an answer", hint=_TLS_HINT) from error
        except TimeoutError:
            if channel.speaks_http():
                problem, hint = f"{self._server} speaks HTTP, not Kafka", "name the port of a broker's listener"
                raise StoreError(problem, hint=hint) from None
            raise
        if offered.error_code:
            raise ProtocolError(f"it answered the request for its versions with error {offered.error_code}")
        return offered.ranges

    def _version(self, request: ClientRequest[Answer]) -> int:
        version = version_of(request, self._offered)
        if version is not None:
            return version
        theirs = self._offered.get(request.api_key)
        if theirs is not None and theirs.lowest > request.versions.highest:
            problem, hint = f"are too new for our {request.name} requests", "a newer kafka-quotas may know them"
        else:
            problem = f"have no {request.name} requests: they are older than Kafka {request.broker_since}"
            hint = "set quotas in their ZooKeeper instead: --zookeeper HOST:2181/CHROOT"
        raise BrokerRefusedError(f"the brokers at {self._url} {problem}", code="UNSUPPORTED_VERSION", hint=hint)

    def _dropped(self, error: OSError) -> OSError | BrokerRefusedError:
        """Drop the connection after a network failure, and return the error to raise."""
        connected = self._channel is not None
        self._drop()
        if self._access.tls is not None:
            from ssl import SSLError  # noqa: PLC0415 - only TLS needs it

            if isinstance(error, SSLError):
                return tls_refusal(error, server=self._server)
        # A port that wants a login answers ApiVersions, and closes the connection at the first other request.
        shut_out = connected and not self._served and self._access.login is None
        if shut_out and isinstance(error, ConnectionError) and not isinstance(error, ShutOutError):
            return ShutOutError(f"{self._server} closed the connection at the first request", hint=_LOGIN_HINT)
        return error

    def _drop(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
