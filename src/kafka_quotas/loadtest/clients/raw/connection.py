"""How raw clients reach a cluster: TLS and login by the plan's properties, connections, and partition leaders.

A property of librdkafka means the same to every client of a run. Raw clients ignore one that only tunes librdkafka, but
for `request.timeout.ms`, and refuse by name a security setting that they can't honour.

Contract: a connection lives in one event loop. `on_lost` is the last call that its owner gets, and what is in flight
then has no response.
**Source:** KIP-219: a client sends nothing on a connection until the throttle time of its last response is over.
"""

import asyncio
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, cast

from kafka_quotas.core.errors import ProtocolError, UsageError
from kafka_quotas.core.formats.documents import read_text
from kafka_quotas.loadtest.clients.cluster_check import LOGIN_HINT, TLS_HINT, LoadRefusedError
from kafka_quotas.loadtest.plan.plan import ClientLoad, LoadPlan
from kafka_quotas.stores.kafka.broker_client import LARGEST_RESPONSE, KafkaAccess, kafka_access
from kafka_quotas.stores.security.sasl import SaslMechanism, password_login, sasl_login
from kafka_quotas.wire.client.admin import Metadata, MetadataRequest
from kafka_quotas.wire.client.request import (
    AuthenticateRequest,
    ClientRequest,
    HandshakeRequest,
    read_answer,
    request_frame,
)
from kafka_quotas.wire.codec.encoding import FRAME_LENGTH_BYTES, checked_frame_length
from kafka_quotas.wire.protocol.api_table import ErrorCode, error_name
from kafka_quotas.wire.protocol.header import RESPONSE_HEAD, RESPONSE_HEAD_BYTES

ANSWER_S: Final = 10.0
"""Default time limit of `RawConnection.ask` in seconds: a broker answers such a request at once, throttled or not."""
CORRELATION_ID_AT: Final = 8
"""The offset of the correlation id in the frame of a request."""
_LARGEST_CORRELATION_ID: Final = 2**31 - 1
_WRITE_BUFFER: Final = 4 * 1024 * 1024
Answer = TypeVar("Answer")


class InFlight(NamedTuple):
    """A request that was sent and has no response."""

    correlation_id: int
    sent_ns: int
    answered: "Callable[[RawConnection, bytes, InFlight], None]"
    """Callback for the response, with its whole frame."""
    matter: Any
    """Context of the request for `answered`."""


class RawConnection(asyncio.Protocol):
    """A connection to one broker, of the client that `client_id` names.

    `on_lost` reports its end to the owner, `on_room` that a full write buffer has drained. `broker` distinguishes the
    connections to different brokers.
    """

    def __init__(
        self,
        *,
        on_lost: "Callable[[RawConnection, Exception | None], None]" = lambda _connection, _error: None,
        on_room: Callable[[], None] = lambda: None,
        broker: int = 0,
    ) -> None:
        self.broker = broker
        self.client_id: str | None = None
        self.in_flight: deque[InFlight] = deque()
        self.blocked_until_ns = 0
        self.is_open = False
        self.is_full = False
        self._on_lost = on_lost
        self._on_room = on_room
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._correlation_id = 0
        self._asked: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take over the open transport."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one by its methods only
        self._transport.set_write_buffer_limits(high=_WRITE_BUFFER)
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        """Pass each complete response to the request that waits for it."""
        received = self._received
        received += data
        start = 0
        try:
            while True:
                length = checked_frame_length(received, start, limit=LARGEST_RESPONSE)
                if length is None or len(received) < start + FRAME_LENGTH_BYTES + length:
                    break
                end = start + FRAME_LENGTH_BYTES + length
                self._answer(bytes(received[start:end]))
                start = end
        except ProtocolError as error:
            self.close(error)
            return
        del received[:start]

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end of the connection, once: to the request of `ask` that waits, or to the owner."""
        was_open, self.is_open = self.is_open, False
        if not was_open:
            return
        if self._asked is None or self._asked.done():
            self._on_lost(self, exc)
        else:
            self._asked.set_exception(exc if isinstance(exc, OSError) else ConnectionAbortedError("it was closed"))

    def pause_writing(self) -> None:
        """Refuse further requests while the write buffer is full."""
        self.is_full = True

    def resume_writing(self) -> None:
        """Report that the write buffer takes requests again."""
        self.is_full = False
        self._on_room()

    def next_correlation_id(self) -> int:
        """Advance and return the correlation id for the next request."""
        self._correlation_id = self._correlation_id % _LARGEST_CORRELATION_ID + 1
        return self._correlation_id

    def send(self, frame: bytes, expected: InFlight | None) -> None:
        """Write a request, and expect a response unless `expected` is None."""
        if expected is not None:
            self.in_flight.append(expected)
        if self._transport is not None:
            self._transport.write(frame)

    def request(
        self,
        request: ClientRequest[Any],
        version: int,
        answered: "Callable[[RawConnection, bytes, InFlight], None]",
        *,
        now_ns: int,
        matter: Any = None,
    ) -> int:
        """Write a request whose response `answered` gets, and return its correlation id.

        The response comes with `matter`, or else the request, as its context.
        """
        correlation_id = self.next_correlation_id()
        frame = request_frame(request, version, correlation_id=correlation_id, client_id=self.client_id)
        self.send(frame, InFlight(correlation_id, now_ns, answered, request if matter is None else matter))
        return correlation_id

    async def ask(self, request: ClientRequest[Answer], version: int, *, within_s: float = ANSWER_S) -> Answer:
        """Send a request and return its response, on a connection with nothing else in flight."""
        if not self.is_open:  # the transport would drop the request, and no later event would end the wait
            raise ConnectionAbortedError("it was closed")
        asked = self._asked = asyncio.get_running_loop().create_future()

        def answered(_connection: "RawConnection", content: bytes, _request: InFlight) -> None:
            if not asked.done():
                asked.set_result(content)

        try:
            async with asyncio.timeout(within_s):
                correlation_id = self.request(request, version, answered, now_ns=time.monotonic_ns())
                content = await asked
        finally:
            self._asked = None
        return read_answer(request, version, content[FRAME_LENGTH_BYTES:], correlation_id=correlation_id)

    def close(self, error: Exception | None = None) -> None:
        """Abort the connection and report `error`, if there is one, to its owner as the reason."""
        if self._transport is not None:
            self._transport.abort()
        if error is not None:
            self.connection_lost(error)

    def _answer(self, frame: bytes) -> None:
        if len(frame) < RESPONSE_HEAD_BYTES:
            raise ProtocolError(f"a response of {len(frame)} bytes has no correlation id")
        # A broker responds in the order of the requests of a connection.
        _, correlation_id = RESPONSE_HEAD.unpack_from(frame)
        if not self.in_flight or self.in_flight[0].correlation_id != correlation_id:
            raise ProtocolError("the broker answered what was not asked")
        request = self.in_flight.popleft()
        request.answered(self, frame, request)


CONTACT_S: Final = 10.0
_HANDSHAKE_VERSION: Final = 1
_AUTHENTICATE_VERSION: Final = 1


async def opened(
    address: tuple[str, int], *, access: KafkaAccess, connection: Callable[[], RawConnection] = RawConnection
) -> RawConnection:
    """Open a connection to a broker and log in, where an `OSError` may pass and any other error doesn't."""
    host, port = address
    loop = asyncio.get_running_loop()
    server_hostname = host if access.tls is not None else None
    try:
        async with asyncio.timeout(CONTACT_S):
            _, made = await loop.create_connection(
                connection, host, port, ssl=access.tls, server_hostname=server_hostname, proto=socket.IPPROTO_TCP
            )
            made.client_id = access.client_id
            try:
                if access.login is not None:
                    await _log_in(made, access.login, host=host, port=port)
            except BaseException:
                made.close()
                raise
    except ssl.SSLCertVerificationError as error:
        raise LoadRefusedError(f"TLS failed at {host}:{port}: {error.verify_message}", hint=TLS_HINT) from error
    except ssl.SSLError as error:
        reason = (error.reason or str(error)).replace("_", " ").lower()
        raise LoadRefusedError(f"TLS failed at {host}:{port}: {reason}", hint=TLS_HINT) from error
    return made


async def asked(
    address: tuple[str, int],
    request: ClientRequest[Answer],
    version: int,
    *,
    access: KafkaAccess,
    within_s: float = ANSWER_S,
) -> Answer:
    """Return a broker's response to one request, on a connection of its own."""
    connection = await opened(address, access=access)
    try:
        return await connection.ask(request, version, within_s=within_s)
    finally:
        connection.close()


async def _log_in(connection: RawConnection, login: SaslMechanism, *, host: str, port: int) -> None:
    server = f"{host}:{port}"
    mechanisms = await connection.ask(HandshakeRequest(mechanism=login.mechanism), _HANDSHAKE_VERSION)
    if mechanisms.error_code:
        offered = ", ".join(mechanisms.offered) or "no login at this port"
        raise LoadRefusedError(f"{server} does not take sasl.mechanism {login.mechanism}, but {offered}")
    tokens = login.begin(host)
    try:
        token = next(tokens)
        while True:
            answer = await connection.ask(AuthenticateRequest(token=token), _AUTHENTICATE_VERSION)
            if answer.error_code:
                detail = f": {answer.error_message.rstrip('.')}" if answer.error_message else ""
                raise LoadRefusedError(f"authentication failed at {server}{detail}", hint=LOGIN_HINT)
            token = tokens.send(answer.token)
    except StopIteration:
        return
    except ProtocolError as error:
        raise LoadRefusedError(f"authentication failed at {server}: {error.message}", hint=LOGIN_HINT) from error


_PLAIN: Final = "PLAIN"
_SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_OUTSIDE: Final = ("AWS_MSK_IAM", "GSSAPI")
_PEM_FILES: Final = {
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.keystore.location": "ssl.keystore.location",
    "ssl.keystore.password": "ssl.keystore.password",
    "ssl.key.password": "ssl.key.password",
    "ssl.key.pem": "ssl.keystore.key",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
}
_UNCHECKED_HOST: Final = "none"


def client_access(plan: LoadPlan, entity: ClientLoad) -> KafkaAccess:
    """Return the client-id, TLS and login of a client of the plan."""
    properties = plan.properties_of(entity)
    protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
    if properties.get("enable.ssl.certificate.verification", "true").strip().lower() == "false":
        raise UsageError(
            "raw clients always verify the broker's certificate", hint="name its authority with -X ssl.ca.location=FILE"
        )
    names = {ours: properties[theirs] for theirs, ours in _PEM_FILES.items() if properties.get(theirs)}
    names |= _own_certificate(properties)
    if properties.get("ssl.endpoint.identification.algorithm", "https").strip().lower() == _UNCHECKED_HOST:
        names["ssl.endpoint.identification.algorithm"] = ""
    is_login = protocol.startswith("SASL_")
    access = kafka_access({**names, "security.protocol": protocol.removeprefix("SASL_") if is_login else protocol})
    return replace(access, client_id=entity.name.client_id, login=_login(properties) if is_login else None)


def _own_certificate(properties: Mapping[str, str]) -> dict[str, str]:
    files = {"ssl.key.location": "ssl.keystore.key", "ssl.certificate.location": "ssl.keystore.certificate.chain"}
    found = {}
    for theirs, ours in files.items():
        path = properties.get(theirs)
        if path:
            try:
                found[ours] = read_text(Path(path), "ascii")
            except (OSError, UnicodeDecodeError) as error:
                raise UsageError(f"{theirs}: cannot read {path}") from error
    return found


def _login(properties: Mapping[str, str]) -> SaslMechanism:
    mechanism = (properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or "").strip().upper()
    if mechanism in _OUTSIDE or properties.get("sasl.jaas.config"):
        return sasl_login({**properties, "sasl.mechanism": mechanism})
    user, password = properties.get("sasl.username"), properties.get("sasl.password")
    if mechanism != _PLAIN and mechanism not in _SCRAM:
        raise UsageError(
            f"raw clients don't log in by sasl.mechanism {mechanism or '(missing)'}",
            hint=f"one of {', '.join((_PLAIN, *_SCRAM, *_OUTSIDE))}, or --client librdkafka",
        )
    if user is None or password is None:
        raise UsageError("a login needs a user and a password", hint="-X sasl.username=.. -X sasl.password=..")
    return password_login(mechanism, user, password)


Address: TypeAlias = tuple[str, int]
_VERSION: Final = 8
LEADER_MOVED: Final = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)
"""What a broker answers that leads the partition no longer."""
_PATIENCE: Final = 12  # attempts: a new topic, or one without a leader, needs up to 3 s to get its leaders
_LOOK_S: Final = 0.25


class Leaders:
    """The partition leaders of a cluster, found through its bootstrap addresses in librdkafka's notation.

    A server that does not answer within `answer_s` seconds counts as unreachable.
    """

    def __init__(self, bootstrap: str, *, answer_s: float = ANSWER_S) -> None:
        self._bootstrap = bootstrap
        self._answer_s = answer_s
        self.servers = tuple(_address(server) for server in bootstrap.split(","))
        self._found: dict[str, Mapping[int, Address]] = {}
        self._asking = asyncio.Lock()
        self._numbers: dict[Address, int] = {}

    async def of(self, topic: str, *, access: KafkaAccess) -> Mapping[int, Address]:
        """Return the address of the leader of every partition, from the cache or from a broker.

        Raises:
            LoadRefusedError: If the topic does not exist or the client may not describe it.
            OSError: If no broker answers, or partitions have no leader.
        """
        async with self._asking:
            found = self._found.get(topic)
            if found is None:
                found = self._found[topic] = await self._settled(topic, access)
            return found

    def forget(self, topic: str) -> None:
        """Drop the topic's leaders from the cache."""
        self._found.pop(topic, None)

    def number_of(self, address: Address) -> int:
        """Return a small number that identifies a broker in this run."""
        return self._numbers.setdefault(address, len(self._numbers))

    async def controller(self, *, access: KafkaAccess) -> Address:
        """Return the address of the broker that takes changes of topics."""
        metadata = await self._asked(None, access)
        addresses = {broker.node_id: (broker.host, broker.port) for broker in metadata.brokers}
        return addresses.get(metadata.controller_id, self.servers[0])

    async def _settled(self, topic: str, access: KafkaAccess) -> Mapping[int, Address]:
        code = 0
        for _ in range(_PATIENCE):
            metadata = await self._asked(topic, access)
            addresses = {broker.node_id: (broker.host, broker.port) for broker in metadata.brokers}
            found = metadata.topics[0]
            code = found.error_code
            leaders = {each.number: addresses.get(each.leader_id) for each in found.partitions}
            known = {number: address for number, address in leaders.items() if address is not None}
            if not code and known and len(known) == len(leaders):
                return known
            # Only a missing topic or leader can pass by itself.
            if code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                break
            await asyncio.sleep(_LOOK_S)
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise LoadRefusedError(f"topic {topic} does not exist at {self._bootstrap}", hint="was it deleted?")
        if code:
            raise LoadRefusedError(f"topic {topic} can't be used at {self._bootstrap}: {error_name(code)}")
        raise ConnectionError(f"topic {topic} has partitions without a leader")

    async def _asked(self, topic: str | None, access: KafkaAccess) -> Metadata:
        trouble: OSError | None = None
        request = MetadataRequest(topics=() if topic is None else (topic,))
        for server in self.servers:
            try:
                return await asked(server, request, _VERSION, access=access, within_s=self._answer_s)
            except OSError as error:
                trouble = error
        assert trouble is not None  # there is one server at least
        raise trouble


def _address(server: str) -> Address:
    """Split `host:port` or `PROTOCOL://host:port`, with librdkafka's default port where none is given."""
    address = server.strip().rpartition("://")[2]
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        return address.strip("[]"), 9092
    return host.strip("[]"), int(port)
