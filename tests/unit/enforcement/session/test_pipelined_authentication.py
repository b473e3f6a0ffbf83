"""Authentication that is pipelined, repeated or missing: the name is that of the request which the broker answered."""

import struct

import pytest
from tests.support.frames.enforcement import (
    CLIENT_ID,
    fetch,
    produce,
    produce_response,
    question,
    question_answer,
    request,
    response,
)
from tests.support.frames.sasl_frames import (
    PLAIN_TOKEN,
    authenticate,
    authenticate_answer,
    exchanged,
    handshake,
    handshake_answer,
)
from tests.support.frames.sasl_frames import UnprovedPair as Pair

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.enforcement.config.rules import ANONYMOUS, UNKNOWN_PRINCIPAL
from kafka_quotas.enforcement.session.identity import MAX_UNAUTHENTICATED_REQUESTS

LIMIT = {QuotaType.PRODUCE: 1000.0}


# Requests of authentication that come before the one in front of them was answered.


def pipelined(pair: Pair, *rounds: tuple[bytes, bytes]) -> None:
    """The client sends all at once.

    The broker answers one after the other what has reached it.
    """
    pair.send(b"".join(sent for sent, _ in rounds))
    for number, (_, answer) in enumerate(rounds, 1):
        assert pair.upstream == b"".join(sent for sent, _ in rounds[:number])
        pair.answer(answer)


@pytest.mark.parametrize("mechanism", ["PLAIN", "GSSAPI", "NOBODY"])
def test_a_handshake_behind_the_token_does_not_lose_the_name(mechanism: str) -> None:
    pair = Pair()
    pipelined(
        pair,
        (handshake("PLAIN"), handshake_answer()),
        (authenticate(PLAIN_TOKEN), authenticate_answer()),
        (handshake(mechanism, correlation_id=3), handshake_answer(error=34, correlation_id=3)),
    )
    assert pair.session.tracker.principal == "alice"
    assert pair.send(produce(4)) == produce(4)
    assert pair.session.tracker.principal == "alice"
    assert pair.counters.unknown_principals == 0


def test_a_second_token_behind_the_first_does_not_change_the_name() -> None:
    pair = Pair()
    other = authenticate(b"\x00bob\x00secret", correlation_id=3)
    pipelined(
        pair,
        (handshake("PLAIN"), handshake_answer()),
        (authenticate(PLAIN_TOKEN), authenticate_answer()),
        (other, authenticate_answer(error=34, correlation_id=3)),
    )
    assert pair.session.tracker.principal == "alice"


def test_a_request_behind_the_token_is_charged_to_whom_the_broker_let_in() -> None:
    pair = Pair(quotas=LIMIT, entity=Entity.of(user="alice"))
    pipelined(
        pair,
        (handshake("PLAIN"), handshake_answer()),
        (authenticate(PLAIN_TOKEN), authenticate_answer()),
        (produce(3, size=50_000), produce_response(3)),
    )
    assert pair.session.state.mute is not None
    assert pair.session.state.mute.limiter.entity == Entity.of(user="alice")


def test_nothing_but_tokens_passes_while_a_client_authenticates_again() -> None:
    pair = Pair()
    exchanged(pair, "PLAIN", (PLAIN_TOKEN, b""))
    pair.send(produce(3))
    pair.exchange(handshake("PLAIN", correlation_id=4), produce_response(3) + handshake_answer(correlation_id=4))
    with pytest.raises(ProtocolError, match="before authentication"):
        pair.send(produce(5))


def test_a_client_may_authenticate_again_as_often_as_it_likes() -> None:
    pair = Pair()
    for _ in range(MAX_UNAUTHENTICATED_REQUESTS):
        exchanged(pair, "PLAIN", (PLAIN_TOKEN, b""))
    assert pair.session.tracker.principal == "alice"


# Nothing counts before the broker has shown that it serves the client.


@pytest.mark.parametrize("error", [33, 34, 35])
def test_a_refused_handshake_does_not_open_a_listener_for_sasl(error: int) -> None:
    pair = Pair(quotas=LIMIT, requires_authentication=True)
    assert pair.send(handshake("BOGUS") + produce(2, size=50_000)) == handshake("BOGUS")
    with pytest.raises(ProtocolError):
        pair.answer(handshake_answer(error=error))
    assert pair.upstream == handshake("BOGUS")
    assert pair.broker.client(ANONYMOUS, CLIENT_ID).produce.peek(pair.now_ms) == 0


@pytest.mark.parametrize("first", [produce(3, size=5004), produce(3, size=5004, acks=0), fetch(3)])
def test_a_request_counts_only_once_the_broker_has_shown_that_it_serves_the_client(first: bytes) -> None:
    pair = Pair(quotas=LIMIT)
    assert pair.send(request(18, 0, 1, b"") + first) == request(18, 0, 1, b"") + question(3)
    assert pair.answer(response(1, b"\x00\x00" + bytes(4))) != b""
    assert pair.broker.client(ANONYMOUS, CLIENT_ID).produce.peek(pair.now_ms) == 0
    pair.answer(question_answer(3))
    assert pair.upstream.endswith(first)
    assert (pair.broker.client(ANONYMOUS, CLIENT_ID).produce.peek(pair.now_ms) == 0) is (first == fetch(3))


def test_the_response_to_what_costs_nothing_shows_it_as_well() -> None:
    pair = Pair(quotas=LIMIT)
    metadata = request(3, 1, 1, bytes(4))
    assert pair.send(metadata) == metadata
    pair.answer(question_answer(1))
    assert pair.send(produce(2)) == produce(2)


def test_a_listener_without_sasl_says_so_by_refusing_a_handshake() -> None:
    pair = Pair()
    pair.exchange(handshake("PLAIN"), handshake_answer(error=34))
    assert pair.send(produce(2)) == produce(2)
    assert pair.session.tracker.principal == ANONYMOUS


def test_the_question_does_not_come_into_the_middle_of_another_request() -> None:
    metadata = request(3, 1, 1, struct.pack(">ih", 1, 200) + bytes(200))
    pair = Pair()
    pair.send(metadata[:100])
    assert pair.send(metadata[100:] + produce(2)) == metadata[100:] + question(2)


def test_who_stops_in_the_middle_of_an_opaque_mechanism_is_not_served() -> None:
    pair = Pair(quotas=LIMIT)
    exchanged(pair, "GSSAPI", (b"\x60opaque", b"\x60more"))
    pair.send(produce(3, size=50_000))
    with pytest.raises(ProtocolError, match="refused the client"):
        pair.answer(question_answer(3, brokers=0))
    assert pair.counters.unknown_principals == 0
    assert pair.broker.client(UNKNOWN_PRINCIPAL, CLIENT_ID).produce.peek(pair.now_ms) == 0
