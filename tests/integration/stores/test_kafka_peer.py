"""The Kafka store against brokers that no real one imitates on demand: old logins, lies, silence, lost connections."""

import itertools
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager

import pytest
from tests.support.brokers.fake_broker import FakeBroker, fake_broker, receive, receive_frame

from kafka_quotas.core.errors import StoreError, StoreRefusedError, StoreUnreachableError, UnconfirmedError
from kafka_quotas.core.model.entity import EVERYTHING, Entity
from kafka_quotas.stores import open_store
from kafka_quotas.stores.address import StoreSettings
from kafka_quotas.stores.store import Alteration, Store
from kafka_quotas.wire.protocol.header import RequestHeader, parse_request_header

HANDSHAKE, API_VERSIONS, AUTHENTICATE, DESCRIBE, ALTER = 17, 18, 36, 48, 49
NO_ENTRIES = struct.pack(">ihhi", 0, 0, -1, 0)
PLAIN: Mapping[str, str] = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": 'a.PlainLoginModule required username="alice" password="s3cret";',
}
SIGNED = {"version", "host", "user-agent", "action", "x-amz-signature"} | {
    f"x-amz-{name}" for name in ("algorithm", "credential", "date", "expires", "signedheaders")
}
Answer = Callable[[socket.socket, RequestHeader], bytes | None]


@contextmanager
def opened(
    broker: FakeBroker, *, timeout_s: float = 10, properties: Mapping[str, str] | None = None
) -> Iterator[Store]:
    settings = StoreSettings(client_properties=properties or {}, timeout_s=timeout_s)
    with closing(open_store(f"kafka://{broker.address}", settings=settings)) as store:
        yield store


def serving(
    answers: Mapping[int, Answer], *, offered: Mapping[int, tuple[int, int]]
) -> Callable[[socket.socket], None]:
    """A connection's handler that answers each request by its API key, and ends the connection at None."""
    ranges = b"".join(struct.pack(">hhh", key, low, high) for key, (low, high) in offered.items())

    def versions(_: socket.socket, header: RequestHeader) -> bytes:
        return struct.pack(">hi", 35 if header.api_version else 0, len(offered)) + ranges

    def handle(connection: socket.socket) -> None:
        while True:
            header = parse_request_header(receive_frame(connection))
            assert header is not None
            body = {API_VERSIONS: versions, **answers}[header.api_key](connection, header)
            if body is None:
                return
            send(connection, header.correlation_id, body)

    return handle


def send(connection: socket.socket, correlation_id: int, body: bytes) -> None:
    connection.sendall(struct.pack(">ii", 4 + len(body), correlation_id) + body)


def test_tokens_travel_in_raw_frames_after_the_oldest_handshake() -> None:
    seen: list[bytes] = []

    def handshake(connection: socket.socket, header: RequestHeader) -> None:
        assert header.api_version == 0
        send(connection, header.correlation_id, struct.pack(">hi", 0, 0))
        seen.append(receive_frame(connection)[4:])
        connection.sendall(bytes(4))
        request = parse_request_header(receive_frame(connection))
        assert request is not None
        assert request.api_key == DESCRIBE
        send(connection, request.correlation_id, NO_ENTRIES)

    offered = {HANDSHAKE: (0, 0), DESCRIBE: (0, 0)}
    with (
        fake_broker(serving({HANDSHAKE: handshake}, offered=offered)) as broker,  # type: ignore[dict-item]
        opened(broker, properties=PLAIN) as store,
    ):
        assert store.describe(EVERYTHING) == []
    assert seen == [b"\0alice\0s3cret"]


def test_a_connection_that_ends_at_a_raw_token_is_a_refusal() -> None:
    def handshake(connection: socket.socket, header: RequestHeader) -> None:
        send(connection, header.correlation_id, struct.pack(">hi", 0, 0))
        receive_frame(connection)

    with (
        fake_broker(serving({HANDSHAKE: handshake}, offered={HANDSHAKE: (0, 0)})) as broker,  # type: ignore[dict-item]
        opened(broker, properties=PLAIN) as store,
        pytest.raises(StoreRefusedError, match="refused the cred") as error,
    ):
        store.describe(EVERYTHING)
    assert "s3cret" not in f"{error.value.message} {error.value.hint}"


def test_a_mechanism_that_is_not_taken_is_told_with_those_that_are() -> None:
    def handshake(_: socket.socket, header: RequestHeader) -> bytes:
        return struct.pack(">hih", 33, 1, 6) + b"GSSAPI"

    with (
        fake_broker(serving({HANDSHAKE: handshake}, offered={HANDSHAKE: (0, 1)})) as broker,
        opened(broker, properties=PLAIN) as store,
        pytest.raises(StoreRefusedError, match="but GSSAPI"),
    ):
        store.describe(EVERYTHING)


def test_a_server_that_can_not_prove_to_know_the_password_is_refused() -> None:
    properties = {**PLAIN, "sasl.mechanism": "SCRAM-SHA-512"}
    steps = itertools.count()

    def authenticate(_: socket.socket, header: RequestHeader) -> bytes:
        token = b"r=evil,s=AAAA,i=4096" if next(steps) == 0 else b"v=AAAA"
        return struct.pack(">hhi", 0, -1, len(token)) + token

    answers: Mapping[int, Answer] = {HANDSHAKE: lambda _, header: struct.pack(">hi", 0, 0), AUTHENTICATE: authenticate}
    with (
        fake_broker(serving(answers, offered={HANDSHAKE: (0, 1), AUTHENTICATE: (0, 0)})) as broker,
        opened(broker, properties=properties) as store,
        pytest.raises(StoreRefusedError, match="our nonce"),
    ):
        store.describe(EVERYTHING)


def test_brokers_that_are_too_new_are_told_so() -> None:
    with (
        fake_broker(serving({}, offered={DESCRIBE: (2, 3)})) as broker,
        opened(broker) as store,
        pytest.raises(StoreRefusedError, match="too new for our quota requests"),
    ):
        store.describe(EVERYTHING)


def test_a_lost_connection_is_made_again_and_the_request_repeated() -> None:
    rounds = itertools.count()

    def describe(_: socket.socket, header: RequestHeader) -> bytes | None:
        return None if next(rounds) % 2 else NO_ENTRIES

    with fake_broker(serving({DESCRIBE: describe}, offered={DESCRIBE: (0, 0)})) as broker, opened(broker) as store:
        for _ in range(3):
            assert store.describe(EVERYTHING) == []


def test_a_change_is_repeated_while_there_is_no_controller() -> None:
    rounds = itertools.count()

    def alter(_: socket.socket, header: RequestHeader) -> bytes:
        entity = struct.pack(">ih4sh1s", 1, 4, b"user", 1, b"a")
        return struct.pack(">iihh", 0, 1, 41 if next(rounds) < 2 else 0, -1) + entity

    with (
        fake_broker(serving({ALTER: alter}, offered={ALTER: (0, 0)})) as broker,
        closing(open_store(f"kafka://{broker.address}", settings=StoreSettings(wait=False))) as store,
    ):
        (result,) = store.alter([Alteration(entity=Entity.of(user="a"), changes={"producer_byte_rate": 1.0})])
    assert (result.error, next(rounds)) == (None, 3)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "announces"),
        (struct.pack(">ii", 8, 999) + bytes(4), "another request"),
        (struct.pack(">i", 2) + b"xx", "another request"),
        (struct.pack(">iihi", 10, 1, 0, 2**31 - 1), "ends inside"),
    ],
)
def test_a_port_that_speaks_something_else_is_told_at_once(answer: bytes, problem: str) -> None:
    def handle(connection: socket.socket) -> None:
        receive_frame(connection)
        connection.sendall(answer)
        receive(connection, 1)

    with fake_broker(handle) as broker, opened(broker, timeout_s=300) as store:
        with pytest.raises(StoreError, match="failed: ") as caught:
            store.describe(EVERYTHING)
        assert problem in f"{caught.value.message} {caught.value.hint}"


def test_a_broker_that_says_nothing_is_given_up() -> None:
    with (
        fake_broker(lambda connection: receive(connection, 10**6) and None) as broker,
        opened(broker, timeout_s=1) as store,
        pytest.raises(StoreUnreachableError, match="no answer in 1 s"),
    ):
        store.describe(EVERYTHING)


def test_closing_the_store_ends_a_request_in_another_thread() -> None:
    waiting = threading.Event()
    raised: list[Exception] = []

    def describe(connection: socket.socket, header: RequestHeader) -> None:
        waiting.set()
        receive(connection, 1)

    def ask(store: Store) -> None:
        try:
            store.describe(EVERYTHING)
        except StoreError as error:
            raised.append(error)

    with fake_broker(serving({DESCRIBE: describe}, offered={DESCRIBE: (0, 0)})) as broker:  # type: ignore[dict-item]
        store = open_store(f"kafka://{broker.address}", settings=StoreSettings(timeout_s=300))
        thread = threading.Thread(target=ask, args=(store,))
        thread.start()
        assert waiting.wait(240)
        store.close()
        thread.join(240)
        assert not thread.is_alive()
    assert "was closed" in str(raised[0])


def test_the_second_server_of_an_address_serves_where_the_first_is_gone() -> None:
    handler = serving({DESCRIBE: lambda _, header: NO_ENTRIES}, offered={DESCRIBE: (0, 0)})
    with (
        fake_broker(handler) as broker,
        closing(open_store(f"kafka://127.0.0.1:1,{broker.address}")) as store,
    ):
        assert store.describe(EVERYTHING) == []


def test_a_change_whose_answer_is_lost_is_not_confirmed() -> None:
    answers: Mapping[int, Answer] = {DESCRIBE: lambda _, header: NO_ENTRIES, ALTER: lambda _, header: None}
    change = Alteration(entity=Entity.of(user="a"), changes={"producer_byte_rate": 1.0})
    with (
        fake_broker(serving(answers, offered={DESCRIBE: (0, 0), ALTER: (0, 0)})) as broker,
        opened(broker, timeout_s=1) as store,
    ):
        assert store.describe(EVERYTHING) == []
        (result,) = store.alter([change])
        assert isinstance(result.error, UnconfirmedError)
        with pytest.raises(StoreUnreachableError) as caught:
            store.alter([change], validate_only=True)
        assert not isinstance(caught.value, UnconfirmedError)


def test_a_change_that_was_never_sent_is_no_unconfirmed_one() -> None:
    with closing(open_store("kafka://127.0.0.1:1")) as store, pytest.raises(StoreUnreachableError) as caught:
        store.alter([Alteration(entity=Entity.of(user="a"), changes={"producer_byte_rate": 1.0})])
    assert not isinstance(caught.value, UnconfirmedError)


def test_a_signed_request_is_what_a_broker_of_msk_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"ACCESS_KEY_ID": "AKIDEXAMPLE", "SECRET_ACCESS_KEY": "s3cret", "REGION": "eu-west-1"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
        "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
    }
    seen: list[dict[str, str]] = []

    def handshake(confirmation: bytes) -> Answer:
        def answer(connection: socket.socket, header: RequestHeader) -> bytes | None:
            send(connection, header.correlation_id, struct.pack(">hi", 0, 0))
            frame = receive_frame(connection)
            login = parse_request_header(frame)
            assert login is not None
            assert login.api_key == AUTHENTICATE
            seen.append(json.loads(frame[login.end + 4 :]))
            body = struct.pack(">hhi", 0, -1, len(confirmation)) + confirmation
            send(connection, login.correlation_id, body)
            request = parse_request_header(receive_frame(connection)) if confirmation else None
            if request is not None:
                send(connection, request.correlation_id, NO_ENTRIES)
            return None

        return answer

    for confirmation in (b'{"version":"2020_10_22","request-id":"7"}', b""):
        offered = {HANDSHAKE: (0, 1), AUTHENTICATE: (0, 0), DESCRIBE: (0, 0)}
        served = serving({HANDSHAKE: handshake(confirmation)}, offered=offered)
        with fake_broker(served) as broker, opened(broker, properties=properties) as store:
            if confirmation:
                assert store.describe(EVERYTHING) == []
            else:
                with pytest.raises(StoreRefusedError, match="does not confirm the signed request") as error:
                    store.describe(EVERYTHING)
                assert "s3cret" not in f"{error.value.message} {error.value.hint}"
    for payload in seen:
        assert payload.keys() == SIGNED
        assert payload["host"] == "127.0.0.1"
        assert payload["x-amz-credential"].endswith("/eu-west-1/kafka-cluster/aws4_request")
    assert len(seen) == 2
