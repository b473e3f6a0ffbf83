"""Logging in at a broker by SASL: which tokens go back and forth, mechanism by mechanism.

A login is a generator: it yields the client's tokens and is sent the broker's. It ends where the client is content and
raises `ProtocolError` where the broker could not prove what it has to.

**Source:** KIP-12, KIP-84, KIP-255; RFC 4616, 5802, 7628; `OAuthBearerSaslClient`, Kafka 4.1.
"""

import os
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from kafka_quotas.stores.client_properties_oauth import TokenSource

Tokens: TypeAlias = Generator[bytes, bytes, None]
_NONCE_BYTES: Final = 24
_SEPARATOR: Final = "\x01"


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaLogin:
    """A mechanism and how to begin a login by it; what it knows never shows in a `repr`."""

    mechanism: str
    begin: Callable[[], Tokens] = field(repr=False)


def plain_login(user: str, password: str) -> KafkaLogin:
    """The login that hands over the password."""

    def tokens() -> Tokens:
        yield f"\0{user}\0{password}".encode()

    return KafkaLogin(mechanism="PLAIN", begin=tokens)


def scram_login(mechanism: str, user: str, password: str) -> KafkaLogin:
    """The login that proves to know the password, and has the broker prove it too."""

    def tokens() -> Tokens:
        from kafka_quotas.wire.scram import ScramClient  # noqa: PLC0415 - hashes that only this login needs

        nonce = os.urandom(_NONCE_BYTES).hex()
        client = ScramClient(mechanism=mechanism, user=user, password=password, nonce=nonce)
        server_first = yield client.first_message()
        client.check_server((yield client.final_message(server_first)))

    return KafkaLogin(mechanism=mechanism, begin=tokens)


def oauth_login(source: "TokenSource") -> KafkaLogin:
    """The login with a token; each one gets a fresh one, as connections are few and a kept one would expire.

    It raises `StoreRefusedError` where there is no token to be had.
    """

    def tokens() -> Tokens:
        pairs = [("auth", f"Bearer {source.fetch()}"), *source.extensions.items()]
        fields = (f"{name}={value}{_SEPARATOR}" for name, value in pairs)
        refusal = yield f"n,,{_SEPARATOR}{''.join(fields)}{_SEPARATOR}".encode()
        if refusal:  # the broker says why, and waits for this before it ends the login
            yield _SEPARATOR.encode()

    return KafkaLogin(mechanism="OAUTHBEARER", begin=tokens)
