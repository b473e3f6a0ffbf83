"""SASL messages and tokens by their bytes."""

import base64
import json
from collections.abc import Callable

import pytest
from tests.support.frames.framing import hex_frame

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.wire.protocol.header import parse_request_header
from kafka_quotas.wire.proxying.sasl import (
    authenticate_result,
    authenticate_token,
    handshake_mechanism,
    oauthbearer_subject,
    plain_user,
    raw_token,
    scram_identity,
    starts_with_gssapi_token,
)


def test_a_null_token_is_an_empty_one():
    frame = hex_frame("0024 0001 00000001 0001 61 ffffffff")
    assert authenticate_token(frame, parse_request_header(frame)) == b""
    assert authenticate_result(hex_frame("00000001 0000 ffff ffffffff 0000000000000001"), 1) == (0, b"")


@pytest.mark.parametrize("text", ["0024 0000 00000001 0001 61 00000003 cafe", "0011 0000 00000001 0001 61 0005 504c"])
def test_a_request_that_ends_too_early_is_refused(text: str):
    frame = hex_frame(text)
    read = authenticate_token if text.startswith("0024") else handshake_mechanism
    with pytest.raises(ProtocolError):
        read(frame, parse_request_header(frame))
    with pytest.raises(ProtocolError, match="whole"):
        read(frame[:-1], parse_request_header(frame))


@pytest.mark.parametrize(
    "text", ["00000001 00", "00000001 0000 ffff 00000001 aa 00000000", "00000001 0000 ffff 00000009 aa"]
)
def test_an_answer_that_ends_too_early_is_refused(text: str):
    with pytest.raises(ProtocolError):
        authenticate_result(hex_frame(text), 1)


def test_raw_frames_hold_nothing_but_the_token():
    assert raw_token(hex_frame("cafe")) == b"\xca\xfe"
    assert raw_token(hex_frame("")) == b""


def test_a_bare_kerberos_token_is_told_from_a_request():
    assert starts_with_gssapi_token(hex_frame("60 82 01")) is True
    assert starts_with_gssapi_token(hex_frame("0011 0000 00000001 0001 61"), 0) is False
    assert starts_with_gssapi_token(b"\xff" + hex_frame("60")[:4], 1) is None


@pytest.mark.parametrize(
    ("token", "user"),
    [(b"\0alice\0secret", "alice"), (b"alice\0alice\0secret", "alice"), ("\0größe\0s".encode(), "größe")],
)
def test_plain_names_its_user(token: bytes, user: str):
    assert plain_user(token) == user


@pytest.mark.parametrize(
    ("token", "name", "is_delegation_token"),
    [
        (b"n,,n=alice,r=abc", "alice", False),
        (b"n,a=alice,n=alice,r=abc", "alice", False),
        (b"n,,n=a=2Cb=3Dc,r=abc", "a,b=c", False),
        (b"n,,n==3D2C,r=abc", "=2C", False),
        (b"n,,n=token-id,r=abc,tokenauth=true", "token-id", True),
        (b"n,,n=token-id,r=abc,x=y,tokenauth=TRUE", "token-id", True),
        (b"n,,n=alice,r=abc,tokenauth=false", "alice", False),
        (b"n,,m=ext,n=alice,r=a+/b==", "alice", False),
    ],
)
def test_scram_names_its_user_or_delegation_token(token: bytes, name: str, is_delegation_token: bool):
    assert scram_identity(token) == (name, is_delegation_token)


def bearer(claims: object, *, scheme: str = "Bearer", extra: str = "") -> bytes:
    part = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    return f"n,,\x01auth={scheme} e30.{part}.c2ln\x01{extra}\x01".encode()


@pytest.mark.parametrize(
    ("token", "claim", "subject"),
    [
        (bearer({"sub": "alice"}), "sub", "alice"),
        (bearer({"sub": "größe"}), "sub", "größe"),
        (bearer({"sub": "alice"}, scheme="bearer", extra="trace=1\x01"), "sub", "alice"),
        (bearer({"sub": "x", "client": "billing"}), "client", "billing"),
        (bearer({"sub": "alice"}).replace(b"c2ln", b""), "sub", "alice"),
    ],
)
def test_oauthbearer_names_the_subject_of_its_token(token: bytes, claim: str, subject: str):
    assert oauthbearer_subject(token, claim=claim) == subject


NO_TOKENS: dict[Callable[[bytes], object], list[bytes]] = {
    plain_user: [
        *(b"", b"alice", b"\0alice", b"\0\0secret", b"\0alice\0", b"bob\0alice\0secret", b"\0a\0b\0c", b"\0\xff\0s"),
    ],
    scram_identity: [
        *(b"", b"n,,n=alice", b"n,,n=,r=abc", b"y,,n=alice,r=abc", b"n,a=bob,n=alice,r=abc"),
        *(b"n,,n=a=41,r=abc", b"c=biws,r=x,p=y"),
    ],
    oauthbearer_subject: [
        *(b"", b"n,,\x01auth=Bearer opaque\x01\x01", b"n,,\x01auth=Basic a.b.c\x01\x01", b"n,,\x01other=1\x01\x01"),
        *(b"n,,\x01auth=Bearer a.!.c\x01\x01", bearer("x").replace(b"e30.", b"")),
        *map(bearer, (["sub"], {}, {"sub": 1}, {"sub": ""})),
    ],
}


@pytest.mark.parametrize(("read", "token"), [(read, each) for read, tokens in NO_TOKENS.items() for each in tokens])
def test_what_names_nobody_is_refused_without_repeating_it(read: Callable[[bytes], object], token: bytes):
    with pytest.raises(ProtocolError) as error:
        read(token)
    assert "secret" not in str(error.value)
