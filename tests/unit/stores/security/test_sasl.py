"""SCRAM as a client speaks it: the RFCs' own examples, and servers that are not to be trusted."""

import pytest

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.stores.security.sasl import ScramClient

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = rf"{NONCE}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SERVER_FIRST = f"r={SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"


def client(**changes: str) -> ScramClient:
    given = {"mechanism": "SCRAM-SHA-256", "user": "user", "password": "pencil", "nonce": NONCE} | changes
    return ScramClient(**given)


def test_the_example_of_rfc_7677() -> None:
    login = client()
    assert login.first_message() == f"n,,n=user,r={NONCE}".encode()
    proof = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert login.final_message(SERVER_FIRST.encode()) == f"c=biws,r={SERVER_NONCE},p={proof}".encode()
    login.check_server(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


def test_a_name_with_signs_of_the_grammar_is_escaped() -> None:
    assert client(user="a=b,c").first_message() == f"n,,n=a=3Db=2Cc,r={NONCE}".encode()


def test_sha_512_makes_longer_proofs() -> None:
    proof = client(mechanism="SCRAM-SHA-512").final_message(SERVER_FIRST.encode()).rpartition(b",p=")[2]
    assert len(proof) == 88


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
    with pytest.raises(ProtocolError, match=problem):
        client().final_message(server_first)


@pytest.mark.parametrize("final", [b"v=AAAA", b"", b"e=invalid-proof", b"v=\xc3\xa9"])
def test_a_server_that_does_not_know_the_password_is_refused(final: bytes) -> None:
    login = client()
    login.final_message(SERVER_FIRST.encode())
    with pytest.raises(ProtocolError):
        login.check_server(final)


def test_nothing_is_believed_before_the_proof() -> None:
    with pytest.raises(ProtocolError, match="could not prove"):
        client().check_server(b"v=")
