"""Who a client is: read from SASL as it passes, believed when the broker has said yes."""

import json
import struct
from base64 import urlsafe_b64encode
from collections.abc import Mapping

import pytest
from tests.support.frames.enforcement import (
    CLIENT_ID,
    WINDOW,
    fetch,
    framed,
    produce,
    produce_response,
    question,
    question_answer,
    request,
    response,
)
from tests.support.frames.enforcement import Pair as ServedPair
from tests.support.frames.sasl_frames import (
    PLAIN_TOKEN,
    SCRAM_FIRST,
    authenticate,
    authenticate_answer,
    handshake,
    handshake_answer,
)

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.enforcement.config.rules import ANONYMOUS, UNKNOWN_PRINCIPAL, EnforcementRules
from kafka_quotas.enforcement.session.principal import MAX_UNAUTHENTICATED_REQUESTS

LIMIT = {QuotaType.PRODUCE: 1000.0}


class Pair(ServedPair):
    """A session of which nobody knows whether its client has to authenticate."""

    def __init__(
        self,
        *,
        quotas: Mapping[QuotaType, float] | None = None,
        rules: EnforcementRules | None = None,
        entity: Entity | None = None,
    ) -> None:
        super().__init__(quotas=quotas, rules=rules, entity=entity, is_served=False)


def exchanged(pair: Pair, mechanism: str, *rounds: tuple[bytes, bytes]) -> None:
    assert pair.send(handshake(mechanism)) == handshake(mechanism)
    assert pair.answer(handshake_answer()) == handshake_answer()
    for token, answer in rounds:
        assert pair.send(authenticate(token)) == authenticate(token)
        assert pair.answer(authenticate_answer(answer)) == authenticate_answer(answer)


def proved(pair: Pair, first: bytes, *, correlation_id: int = 3) -> None:
    """The client's first request went on once the broker had answered what it answers to those only that it serves."""
    assert pair.send(first) == question(correlation_id)
    assert pair.answer(question_answer(correlation_id)) == b""
    assert pair.upstream.endswith(question(correlation_id) + first)


def test_without_authentication_everybody_is_anonymous() -> None:
    assert Pair().session.principal == ANONYMOUS


def test_a_plain_user_counts_once_the_broker_said_yes() -> None:
    pair = Pair()
    pair.send(handshake("PLAIN"))
    pair.answer(handshake_answer())
    pair.send(authenticate(PLAIN_TOKEN))
    assert pair.session.principal == ANONYMOUS
    pair.answer(authenticate_answer())
    assert pair.session.principal == "alice"
    assert pair.counters.authentications == 1


def test_a_plain_user_whom_the_broker_refuses_does_not_count() -> None:
    pair = Pair()
    pair.send(handshake("PLAIN"))
    pair.answer(handshake_answer())
    pair.send(authenticate(PLAIN_TOKEN))
    pair.answer(authenticate_answer(error=58))
    assert pair.session.principal == ANONYMOUS
    assert pair.counters.authentications == 0


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_scram_user_counts_after_the_brokers_last_message(mechanism: str) -> None:
    pair = Pair()
    exchanged(pair, mechanism, (SCRAM_FIRST, b"r=nonce2,s=c2FsdA==,i=4096"))
    assert pair.session.principal == ANONYMOUS
    token, answer = b"c=biws,r=nonce2,p=cHJvb2Y=", b"v=dmVyaWZpZXI="
    pair.send(authenticate(token))
    pair.answer(authenticate_answer(answer))
    assert pair.session.principal == "al,ice"


def test_a_scram_error_is_no_success() -> None:
    pair = Pair()
    exchanged(pair, "SCRAM-SHA-256", (SCRAM_FIRST, b"e=unknown-user"))
    assert pair.session.principal == ANONYMOUS


def test_a_delegation_token_does_not_name_its_owner() -> None:
    pair = Pair()
    exchanged(
        pair,
        "SCRAM-SHA-256",
        (SCRAM_FIRST + b",tokenauth=true", b"r=nonce2,s=c2FsdA==,i=4096"),
        (b"c=biws,r=nonce2,p=cHJvb2Y=", b"v=dmVyaWZpZXI="),
    )
    assert pair.session.principal == UNKNOWN_PRINCIPAL
    assert pair.counters.unknown_principals == 1


@pytest.mark.parametrize("mechanism", ["GSSAPI", "AWS_MSK_IAM"])
def test_what_can_not_be_read_becomes_the_fallback_and_is_said(mechanism: str) -> None:
    pair = Pair(rules=EnforcementRules(window=WINDOW, unknown_principal="somebody"))
    exchanged(pair, mechanism, (b"\x60opaque", b"\x60more"), (b"\x60opaque", b""))
    assert pair.session.principal == ANONYMOUS
    proved(pair, produce(3))  # the client knows that it is through
    assert pair.session.principal == "somebody"
    assert pair.counters.unknown_principals == 1
    assert pair.notices[-1].fields == {"mechanism": mechanism, "counts_as": "somebody"}


def test_what_can_not_be_read_is_not_taken_for_a_success_when_it_fails() -> None:
    pair = Pair()
    pair.send(handshake("GSSAPI"))
    pair.answer(handshake_answer())
    pair.send(authenticate(b"\x60opaque"))
    pair.answer(authenticate_answer(error=58))
    with pytest.raises(ProtocolError, match="refused the client"):
        pair.send(produce(3))
    assert pair.counters.authentications == 0


def bearer(**claims: object) -> bytes:
    parts = (json.dumps(part).encode() for part in ({"alg": "none"}, claims))
    token = b".".join((*(urlsafe_b64encode(part).rstrip(b"=") for part in parts), b""))
    return b"n,,\x01auth=Bearer " + token + b"\x01\x01"


def test_a_bearers_token_names_its_subject_or_the_claim_that_was_chosen() -> None:
    for claim, user in (("sub", "alice"), ("email", "alice@example.com")):
        pair = Pair(rules=EnforcementRules(window=WINDOW, oauthbearer_claim=claim))
        exchanged(pair, "OAUTHBEARER", (bearer(sub="alice", email="alice@example.com"), b""))
        assert pair.session.principal == user


def test_a_bearers_token_that_the_broker_finds_wanting_is_no_success() -> None:
    pair = Pair()
    exchanged(pair, "OAUTHBEARER", (bearer(sub="alice"), b'{"status":"invalid_token"}'))
    assert pair.session.principal == ANONYMOUS
    pair.send(authenticate(b"\x01"))
    pair.answer(authenticate_answer(error=58))
    assert pair.session.principal == ANONYMOUS


@pytest.mark.parametrize("token", [bearer(name="alice"), b"n,,\x01auth=Bearer opaque\x01\x01"])
def test_a_bearers_token_without_the_claim_counts_as_unknown(token: bytes) -> None:
    pair = Pair()
    exchanged(pair, "OAUTHBEARER", (token, b""))
    assert pair.session.principal == UNKNOWN_PRINCIPAL
    assert pair.counters.unknown_principals == 1


def test_a_certificate_names_the_client_until_sasl_does() -> None:
    pair = Pair()
    pair.identity.certified("carol")
    assert pair.session.principal == "carol"
    exchanged(pair, "PLAIN", (PLAIN_TOKEN, b""))
    assert pair.session.principal == "alice"


def test_a_certificate_that_no_rule_knows_counts_as_unknown_and_a_fixed_name_beats_it() -> None:
    pair = Pair()
    pair.identity.certified(None)
    assert pair.session.principal == UNKNOWN_PRINCIPAL
    assert pair.counters.unknown_principals == 1
    fixed = Pair(rules=EnforcementRules(window=WINDOW, principal="gateway"))
    fixed.identity.certified("carol")
    assert fixed.session.principal == "gateway"


def test_who_must_authenticate_sends_nothing_else_before() -> None:
    rules = EnforcementRules(window=WINDOW, requires_authentication=True)
    pair = Pair(rules=rules)
    with pytest.raises(ProtocolError, match="before authentication"):
        pair.send(produce(1))
    pair = Pair(rules=rules)
    exchanged(pair, "PLAIN", (PLAIN_TOKEN, b""))
    assert pair.send(produce(1)) == produce(1)


def test_requests_before_authentication_are_few_and_small() -> None:
    pair = Pair()
    for number in range(MAX_UNAUTHENTICATED_REQUESTS):
        pair.send(request(18, 0, number, b""))
    with pytest.raises(ProtocolError, match="32 requests"):
        pair.send(request(18, 0, 99, b""))
    with pytest.raises(ProtocolError, match="600"):
        Pair().send(request(18, 3, 1, bytes(600_000))[:100])
    tokens = Pair()
    for _ in range(MAX_UNAUTHENTICATED_REQUESTS):
        tokens.send(framed(b"\x60token"))
    with pytest.raises(ProtocolError, match="32 requests"):
        tokens.send(framed(b"\x60token"))


def test_a_known_client_may_ask_for_versions_as_often_as_it_likes() -> None:
    pair = Pair()
    exchanged(pair, "PLAIN", (PLAIN_TOKEN, b""))
    for number in range(MAX_UNAUTHENTICATED_REQUESTS + 1):
        pair.send(request(18, 0, number, b""))


def test_a_token_that_is_none_leaves_the_name_unknown_should_the_broker_be_content() -> None:
    pair = Pair()
    exchanged(pair, "PLAIN", (b"no NUL in here", b""))
    assert pair.session.principal == UNKNOWN_PRINCIPAL


def test_reauthentication_is_the_same_exchange_once_more() -> None:
    pair = Pair()
    exchanged(pair, "PLAIN", (PLAIN_TOKEN, b""))
    exchanged(pair, "PLAIN", (b"\x00bob\x00secret", b""))
    assert pair.session.principal == "bob"


def test_a_refused_mechanism_starts_nothing() -> None:
    pair = Pair()
    pair.send(handshake("OTHER", version=0))
    pair.answer(handshake_answer(error=33))
    with pytest.raises(ProtocolError, match="refused the client"):
        pair.send(produce(2))
    assert pair.session.principal == ANONYMOUS


def test_a_fixed_principal_beats_what_passes() -> None:
    pair = Pair(rules=EnforcementRules(window=WINDOW, principal="gateway"))
    exchanged(pair, "PLAIN", (PLAIN_TOKEN, b""))
    exchanged(pair, "GSSAPI", (b"\x60", b""))
    assert pair.session.principal == "gateway"
    assert pair.counters.unknown_principals == 0


def test_raw_tokens_after_handshake_version_0() -> None:
    pair = Pair()
    pair.send(handshake("PLAIN", version=0))
    assert pair.send(framed(PLAIN_TOKEN)) == b""  # not before the broker has taken the mechanism
    pair.answer(handshake_answer())
    assert pair.upstream.endswith(framed(PLAIN_TOKEN))
    assert pair.session.principal == ANONYMOUS
    assert pair.answer(framed(b"")) == framed(b"")
    assert pair.session.principal == "alice"
    assert pair.send(produce(2)) == produce(2)
    assert pair.answer(produce_response(2)) == produce_response(2)


def test_raw_scram_takes_two_rounds() -> None:
    pair = Pair()
    pair.send(handshake("SCRAM-SHA-256", version=0))
    pair.answer(handshake_answer())
    pair.send(framed(SCRAM_FIRST))
    pair.answer(framed(b"r=nonce2,s=c2FsdA==,i=4096"))
    pair.send(framed(b"c=biws,r=nonce2,p=cHJvb2Y="))
    assert pair.session.principal == ANONYMOUS
    pair.answer(framed(b"v=dmVyaWZpZXI="))
    assert pair.session.principal == "al,ice"
    assert pair.send(produce(2)) == produce(2)


def test_opaque_raw_tokens_pass_until_the_first_request() -> None:
    pair = Pair()
    pair.send(handshake("GSSAPI", version=0))
    pair.answer(handshake_answer())
    for token, answer in ((b"\x60first", b"\x60reply"), (b"", b"\x05\x04wrap")):
        assert pair.send(framed(token)) == framed(token)
        assert pair.answer(framed(answer)) == framed(answer)
    assert pair.send(framed(b"\x05\x04last")) == framed(b"\x05\x04last")  # nobody answers this one
    assert pair.session.principal == ANONYMOUS
    proved(pair, produce(3))
    assert pair.session.principal == UNKNOWN_PRINCIPAL
    assert pair.answer(produce_response(3)) == produce_response(3)


def test_a_client_that_starts_with_a_kerberos_token() -> None:
    pair = Pair()
    assert pair.send(framed(b"\x60first")) == framed(b"\x60first")
    assert pair.answer(framed(b"\x60reply")) == framed(b"\x60reply")
    proved(pair, produce(3))
    assert pair.session.principal == UNKNOWN_PRINCIPAL


def test_quotas_follow_the_principal_on_the_same_connection() -> None:
    pair = Pair(quotas=LIMIT, entity=Entity.of(user="alice"))
    proved(pair, produce(9, size=50_000), correlation_id=9)
    pair.answer(produce_response(9))
    assert pair.session.mute is None
    exchanged(pair, "PLAIN", (PLAIN_TOKEN, b""))
    pair.send(produce(10, size=50_000))
    pair.answer(produce_response(10))
    assert pair.session.mute is not None
    assert pair.session.mute.limiter.entity == Entity.of(user="alice")


def test_an_authentication_request_is_not_gathered_without_end() -> None:
    token = bytes(600_000)
    with pytest.raises(ProtocolError, match="authentication request announces"):
        Pair().send(authenticate(token)[:100])


# Requests of authentication that come before the one in front of them was answered.


def pipelined(pair: Pair, *rounds: tuple[bytes, bytes]) -> None:
    """The client sends all at once; the broker answers one after the other what has reached it."""
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
    assert pair.session.principal == "alice"
    assert pair.send(produce(4)) == produce(4)
    assert pair.session.principal == "alice"
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
    assert pair.session.principal == "alice"


def test_a_request_behind_the_token_is_charged_to_whom_the_broker_let_in() -> None:
    pair = Pair(quotas=LIMIT, entity=Entity.of(user="alice"))
    pipelined(
        pair,
        (handshake("PLAIN"), handshake_answer()),
        (authenticate(PLAIN_TOKEN), authenticate_answer()),
        (produce(3, size=50_000), produce_response(3)),
    )
    assert pair.session.mute is not None
    assert pair.session.mute.limiter.entity == Entity.of(user="alice")


def test_nothing_but_tokens_passes_while_a_client_authenticates_again() -> None:
    pair = Pair()
    exchanged(pair, "PLAIN", (PLAIN_TOKEN, b""))
    pair.send(produce(3))
    pair.send(handshake("PLAIN", correlation_id=4))
    pair.answer(produce_response(3) + handshake_answer(correlation_id=4))
    with pytest.raises(ProtocolError, match="before authentication"):
        pair.send(produce(5))


def test_a_client_may_authenticate_again_as_often_as_it_likes() -> None:
    pair = Pair()
    for _ in range(MAX_UNAUTHENTICATED_REQUESTS):
        exchanged(pair, "PLAIN", (PLAIN_TOKEN, b""))
    assert pair.session.principal == "alice"


# Nothing counts before the broker has shown that it serves the client.


@pytest.mark.parametrize("error", [33, 34, 35])
def test_a_refused_handshake_does_not_open_a_listener_for_sasl(error: int) -> None:
    pair = Pair(quotas=LIMIT, rules=EnforcementRules(window=WINDOW, requires_authentication=True))
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
    pair.send(handshake("PLAIN"))
    pair.answer(handshake_answer(error=34))
    assert pair.send(produce(2)) == produce(2)
    assert pair.session.principal == ANONYMOUS


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
