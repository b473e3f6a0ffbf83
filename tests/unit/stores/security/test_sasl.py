"""SCRAM as a client speaks it: the RFCs' own examples, and servers that are not to be trusted."""

import pytest

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.stores.security.sasl import Tokens, scram_tokens

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = rf"{NONCE}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SERVER_FIRST = f"r={SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"


def client(**changes: str) -> Tokens:
    """A login that has not begun."""
    given = {"mechanism": "SCRAM-SHA-256", "user": "user", "password": "pencil", "nonce": NONCE} | changes
    return scram_tokens(**given)


def proven(**changes: str) -> tuple[Tokens, bytes]:
    """A login that waits for the server's proof, and the client's."""
    login = client(**changes)
    next(login)
    return login, login.send(SERVER_FIRST.encode())


def test_the_example_of_rfc_7677() -> None:
    assert next(client()) == f"n,,n=user,r={NONCE}".encode()
    login, final = proven()
    assert final == f"c=biws,r={SERVER_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    with pytest.raises(StopIteration):
        login.send(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


def test_a_name_with_signs_of_the_grammar_is_escaped() -> None:
    assert next(client(user="a=b,c")) == f"n,,n=a=3Db=2Cc,r={NONCE}".encode()


def test_sha_512_makes_longer_proofs() -> None:
    assert len(proven(mechanism="SCRAM-SHA-512")[1].rpartition(b",p=")[2]) == 88


@pytest.mark.parametrize(
    ("server_first", "problem"),
    [
        (b"r=other,s=QSXCR+Q6sek8bf92,i=4096", "did not take up our nonce"),
        (f"m=new,{SERVER_FIRST}".encode(), "an extension of SCRAM"),
        (f"r={NONCE},s=QSXCR+Q6sek8bf92,i=4096".encode(), "did not take up our nonce"),
        (SERVER_FIRST.replace("4096", "4095").encode(), "asks for 4095 iterations"),
        (SERVER_FIRST.replace("4096", "99999999").encode(), "asks for 99999999 iterations"),
        (SERVER_FIRST.replace("i=4096", "i=x").encode(), "asks for x iterations"),
        (SERVER_FIRST.replace("W22Z", "!!!!").encode(), "not base64"),
        (b"\xff\xfe", "not UTF-8"),
        (b"", "did not take up our nonce"),
    ],
)
def test_a_server_that_can_not_be_meant_is_refused(server_first: bytes, problem: str) -> None:
    login = client()
    next(login)
    with pytest.raises(ProtocolError, match=problem):
        login.send(server_first)


@pytest.mark.parametrize("final", [b"v=AAAA", b"", b"v=", b"e=invalid-proof", b"v=\xc3\xa9"])
def test_a_server_that_does_not_know_the_password_is_refused(final: bytes) -> None:
    with pytest.raises(ProtocolError):
        proven()[0].send(final)
