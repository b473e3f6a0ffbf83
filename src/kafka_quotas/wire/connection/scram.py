"""The client's side of SCRAM: three messages, and the check that the server knows the password too.

Names and passwords are used unchanged, as in Kafka: without SASLprep. There is no channel binding.

**Source:** RFC 5802, RFC 7677; `ScramSaslClient`, `ScramFormatter`, Kafka 4.1.
"""

import hashlib
import hmac
from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Mapping
from typing import Final

from kafka_quotas.core.errors import ProtocolError

_MANDATORY: Final = "m"
FEWEST_ITERATIONS: Final = 4096
"""A server that asks for fewer is not believed: it could be one that collects passwords."""
MOST_ITERATIONS: Final = 10_000_000
"""The limit on the server's iterations, against servers that waste our time; brokers have 16,384 at most."""
_NO_CHANNEL_BINDING: Final = "n,,"
_HASHES: Final[Mapping[str, Callable[..., "hashlib._Hash"]]] = {
    "SCRAM-SHA-256": hashlib.sha256,
    "SCRAM-SHA-512": hashlib.sha512,
}


class ScramClient:
    """One login: `first_message`, then `final_message`, then `check_server`.

    `nonce` is the client's random text: printable ASCII without commas, fresh for every login.
    """

    def __init__(self, *, mechanism: str, user: str, password: str, nonce: str) -> None:
        self._hash = _HASHES[mechanism]
        self._password = password.encode()
        self._nonce = nonce
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={name},r={nonce}"
        self._server_signature = b""

    def first_message(self) -> bytes:
        """Return the client's first message."""
        return f"{_NO_CHANNEL_BINDING}{self._first_bare}".encode()

    def final_message(self, server_first: bytes) -> bytes:
        """Return the client's proof.

        Raises:
            ProtocolError: The server's message is invalid or can't be trusted.
        """
        fields = _fields(server_first)
        if _MANDATORY in fields:  # RFC 5802, section 5.1: a client that does not know it must end the login
            raise ProtocolError("the server asks for an extension of SCRAM that we don't know")
        nonce, salt, iterations = fields.get("r", ""), _decoded(fields.get("s", "")), fields.get("i", "")
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise ProtocolError("the server did not take up our nonce")
        if not iterations.isdecimal() or not FEWEST_ITERATIONS <= int(iterations) <= MOST_ITERATIONS:
            raise ProtocolError(f"the server asks for {iterations or 'no'} iterations")
        without_proof = f"c={_encoded(_NO_CHANNEL_BINDING.encode())},r={nonce}"
        auth_message = f"{self._first_bare},{server_first.decode()},{without_proof}".encode()
        salted = hashlib.pbkdf2_hmac(self._hash().name, self._password, salt, int(iterations))
        client_key = self._hmac(salted, b"Client Key")
        signature = self._hmac(self._hash(client_key).digest(), auth_message)
        self._server_signature = self._hmac(self._hmac(salted, b"Server Key"), auth_message)
        proof = bytes(ours ^ theirs for ours, theirs in zip(client_key, signature, strict=True))
        return f"{without_proof},p={_encoded(proof)}".encode()

    def check_server(self, server_final: bytes) -> None:
        """Check the server's proof that it knows the password.

        Raises:
            ProtocolError: A server without a valid proof.
        """
        shown = _decoded(_fields(server_final).get("v", ""))
        if not self._server_signature or not hmac.compare_digest(shown, self._server_signature):
            raise ProtocolError("the server could not prove that it knows the password")

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash().name)


def _fields(message: bytes) -> dict[str, str]:
    """Return the attributes of a message, letter to value."""
    try:
        pieces = message.decode().split(",")
    except UnicodeDecodeError as error:
        raise ProtocolError("a SCRAM message is not UTF-8") from error
    return {piece[:1]: piece[2:] for piece in pieces if piece[1:2] == "="}


def _encoded(value: bytes) -> str:
    return b2a_base64(value, newline=False).decode()


def _decoded(text: str) -> bytes:
    try:
        return a2b_base64(text.encode(), strict_mode=True)
    except Base64Error as error:
        raise ProtocolError("a SCRAM message is not base64 where it should be") from error
