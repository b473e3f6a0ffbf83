"""Who a client is: read from SASL as it passes, believed when the broker has said yes."""

import json
from base64 import urlsafe_b64encode
from typing import Any

import pytest
from tests.support.frames.enforcement import WINDOW, framed, produce, produce_response, request
from tests.support.frames.sasl_frames import (
    PLAIN_TOKEN,
    SCRAM_FIRST,
    authenticate,
    authenticate_answer,
    exchanged,
    handshake,
    handshake_answer,
    proved,
)
from tests.support.frames.sasl_frames import UnprovedPair as Pair

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.enforcement.config.rules import ANONYMOUS, UNKNOWN_PRINCIPAL, EnforcementRules
from kafka_quotas.enforcement.session.identity import MAX_UNAUTHENTICATED_REQUESTS

LIMIT = {QuotaType.PRODUCE: 1000.0}


def bearer(**claims: object) -> bytes:
    parts = (json.dumps(part).encode() for part in ({"alg": "none"}, claims))
    token = b".".join((*(urlsafe_b64encode(part).rstrip(b"=") for part in parts), b""))
    return b"n,,\x01auth=Bearer " + token + b"\x01\x01"


NONCE, PROOF = b"r=nonce2,s=c2FsdA==,i=4096", (b"c=biws,r=nonce2,p=cHJvb2Y=", b"v=dmVyaWZpZXI=")
CLAIMS = bearer(sub="alice", email="alice@example.com")


@pytest.mark.parametrize(
    ("exchanges", "settings", "principal", "unknown"),
    [
        ([], {}, ANONYMOUS, 0),
        ([("SCRAM-SHA-256", [(SCRAM_FIRST, b"e=unknown-user")])], {}, ANONYMOUS, 0),
        # A delegation token does not name its owner.
        ([("SCRAM-SHA-256", [(SCRAM_FIRST + b",tokenauth=true", NONCE), PROOF])], {}, UNKNOWN_PRINCIPAL, 1),
        ([("OAUTHBEARER", [(CLAIMS, b"")])], {}, "alice", 0),
        ([("OAUTHBEARER", [(CLAIMS, b"")])], {"oauthbearer_claim": "email"}, "alice@example.com", 0),
        ([("OAUTHBEARER", [(bearer(name="alice"), b"")])], {}, UNKNOWN_PRINCIPAL, 1),
        ([("OAUTHBEARER", [(b"n,,\x01auth=Bearer opaque\x01\x01", b"")])], {}, UNKNOWN_PRINCIPAL, 1),
        ([("PLAIN", [(b"no NUL in here", b"")])], {}, UNKNOWN_PRINCIPAL, 1),
        ([("PLAIN", [(PLAIN_TOKEN, b"")]), ("PLAIN", [(b"\x00bob\x00secret", b"")])], {}, "bob", 0),
        ([("PLAIN", [(PLAIN_TOKEN, b"")]), ("GSSAPI", [(b"\x60", b"")])], {"principal": "gateway"}, "gateway", 0),
    ],
)
def test_an_exchange_that_the_broker_accepts_names_the_client(
    exchanges: list[tuple[str, list[tuple[bytes, bytes]]]], settings: dict[str, Any], principal: str, unknown: int
) -> None:
    pair = Pair(**settings)
    for mechanism, rounds in exchanges:
        exchanged(pair, mechanism, *rounds)
    assert (pair.session.tracker.principal, pair.counters.unknown_principals) == (principal, unknown)


def test_a_plain_user_counts_once_the_broker_said_yes() -> None:
    pair = Pair()
    pair.exchange(handshake("PLAIN"), handshake_answer())
    pair.send(authenticate(PLAIN_TOKEN))
    assert pair.session.tracker.principal == ANONYMOUS
    pair.answer(authenticate_answer())
    assert pair.session.tracker.principal == "alice"
    assert pair.counters.authentications == 1


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_scram_user_counts_after_the_brokers_last_message(mechanism: str) -> None:
    pair = Pair()
    exchanged(pair, mechanism, (SCRAM_FIRST, NONCE))
    assert pair.session.tracker.principal == ANONYMOUS
    pair.exchange(authenticate(PROOF[0]), authenticate_answer(PROOF[1]))
    assert pair.session.tracker.principal == "al,ice"


@pytest.mark.parametrize("mechanism", ["GSSAPI", "AWS_MSK_IAM"])
def test_what_can_not_be_read_becomes_the_fallback_and_is_said(mechanism: str) -> None:
    pair = Pair(unknown_principal="somebody")
    exchanged(pair, mechanism, (b"\x60opaque", b"\x60more"), (b"\x60opaque", b""))
    assert pair.session.tracker.principal == ANONYMOUS
    proved(pair, produce(3))  # the client knows that it is through
    assert pair.session.tracker.principal == "somebody"
    assert pair.counters.unknown_principals == 1
    assert pair.notices[-1].fields == {"mechanism": mechanism, "counts_as": "somebody"}


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        ([handshake("PLAIN"), authenticate(PLAIN_TOKEN)], [handshake_answer(), authenticate_answer(error=58)]),
        ([handshake("GSSAPI"), authenticate(b"\x60opaque")], [handshake_answer(), authenticate_answer(error=58)]),
        ([handshake("OTHER", version=0)], [handshake_answer(error=33)]),
    ],
    ids=["a user", "what can not be read", "a mechanism"],
)
def test_whom_the_broker_refuses_is_nobody(asked: list[bytes], answered: list[bytes]) -> None:
    pair = Pair()
    for sent, answer in zip(asked, answered, strict=True):
        pair.exchange(sent, answer)
    with pytest.raises(ProtocolError, match="refused the client"):
        pair.send(produce(3))
    assert (pair.session.tracker.principal, pair.counters.authentications) == (ANONYMOUS, 0)


def test_a_bearers_token_that_the_broker_finds_wanting_is_no_success() -> None:
    pair = Pair()
    exchanged(pair, "OAUTHBEARER", (bearer(sub="alice"), b'{"status":"invalid_token"}'))
    assert pair.session.tracker.principal == ANONYMOUS
    pair.exchange(authenticate(b"\x01"), authenticate_answer(error=58))
    assert pair.session.tracker.principal == ANONYMOUS


def test_a_certificate_names_the_client_until_sasl_does() -> None:
    pair = Pair()
    pair.tracker.take_certificate("carol")
    assert pair.session.tracker.principal == "carol"
    exchanged(pair, "PLAIN", (PLAIN_TOKEN, b""))
    assert pair.session.tracker.principal == "alice"


def test_a_certificate_that_no_rule_knows_counts_as_unknown_and_a_fixed_name_beats_it() -> None:
    pair = Pair()
    pair.tracker.take_certificate(None)
    assert pair.session.tracker.principal == UNKNOWN_PRINCIPAL
    assert pair.counters.unknown_principals == 1
    fixed = Pair(principal="gateway")
    fixed.tracker.take_certificate("carol")
    assert fixed.session.tracker.principal == "gateway"


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


def test_raw_tokens_after_handshake_version_0() -> None:
    pair = Pair()
    pair.send(handshake("PLAIN", version=0))
    assert pair.send(framed(PLAIN_TOKEN)) == b""  # not before the broker has taken the mechanism
    pair.answer(handshake_answer())
    assert pair.upstream.endswith(framed(PLAIN_TOKEN))
    assert pair.session.tracker.principal == ANONYMOUS
    assert pair.answer(framed(b"")) == framed(b"")
    assert pair.session.tracker.principal == "alice"
    assert pair.send(produce(2)) == produce(2)
    assert pair.answer(produce_response(2)) == produce_response(2)


def test_raw_scram_takes_two_rounds() -> None:
    pair = Pair()
    pair.exchange(handshake("SCRAM-SHA-256", version=0), handshake_answer())
    pair.exchange(framed(SCRAM_FIRST), framed(b"r=nonce2,s=c2FsdA==,i=4096"))
    pair.send(framed(b"c=biws,r=nonce2,p=cHJvb2Y="))
    assert pair.session.tracker.principal == ANONYMOUS
    pair.answer(framed(b"v=dmVyaWZpZXI="))
    assert pair.session.tracker.principal == "al,ice"
    assert pair.send(produce(2)) == produce(2)


def test_opaque_raw_tokens_pass_until_the_first_request() -> None:
    pair = Pair()
    pair.exchange(handshake("GSSAPI", version=0), handshake_answer())
    for token, answer in ((b"\x60first", b"\x60reply"), (b"", b"\x05\x04wrap")):
        assert pair.send(framed(token)) == framed(token)
        assert pair.answer(framed(answer)) == framed(answer)
    assert pair.send(framed(b"\x05\x04last")) == framed(b"\x05\x04last")  # nobody answers this one
    assert pair.session.tracker.principal == ANONYMOUS
    proved(pair, produce(3))
    assert pair.session.tracker.principal == UNKNOWN_PRINCIPAL
    assert pair.answer(produce_response(3)) == produce_response(3)


def test_a_client_that_starts_with_a_kerberos_token() -> None:
    pair = Pair()
    assert pair.send(framed(b"\x60first")) == framed(b"\x60first")
    assert pair.answer(framed(b"\x60reply")) == framed(b"\x60reply")
    proved(pair, produce(3))
    assert pair.session.tracker.principal == UNKNOWN_PRINCIPAL


def test_quotas_follow_the_principal_on_the_same_connection() -> None:
    pair = Pair(quotas=LIMIT, entity=Entity.of(user="alice"))
    proved(pair, produce(9, size=50_000), correlation_id=9)
    pair.answer(produce_response(9))
    assert pair.session.state.mute is None
    exchanged(pair, "PLAIN", (PLAIN_TOKEN, b""))
    pair.exchange(produce(10, size=50_000), produce_response(10))
    assert pair.session.state.mute is not None
    assert pair.session.state.mute.limiter.entity == Entity.of(user="alice")


def test_an_authentication_request_is_not_gathered_without_end() -> None:
    token = bytes(600_000)
    with pytest.raises(ProtocolError, match="authentication request announces"):
        Pair().send(authenticate(token)[:100])
