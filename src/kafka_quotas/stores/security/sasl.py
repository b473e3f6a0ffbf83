"""SASL logins at a broker, mechanism by mechanism, from Kafka's client properties.

| property | meaning |
|---|---|
| `sasl.mechanism` | PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER |
| `sasl.jaas.config` | the login: `username` and `password`, or the options of OAUTHBEARER |

A login is a generator: it yields the client's tokens and is sent the broker's. It ends where the client is content and
raises `ProtocolError` where the broker could not prove what it has to.

**Source:** KIP-12, KIP-84, KIP-255; RFC 4616, 5802, 7628; `OAuthBearerSaslClient`, Kafka 4.1.
"""

import os
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from kafka_quotas.core.errors import UsageError
from kafka_quotas.stores.security.jaas import JaasLogin, parse_jaas
from kafka_quotas.stores.security.oauthbearer import TokenSource, token_source

Tokens: TypeAlias = Generator[bytes, bytes, None]
_NONCE_BYTES: Final = 24
_SEPARATOR: Final = "\x01"


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslMechanism:
    """A mechanism with its credentials."""

    mechanism: str
    begin: Callable[[], Tokens] = field(repr=False)
    """Begins a login, without its credentials in any `repr`."""


def plain_login(user: str, password: str) -> SaslMechanism:
    """Return the login that sends the password."""

    def tokens() -> Tokens:
        yield f"\0{user}\0{password}".encode()

    return SaslMechanism(mechanism="PLAIN", begin=tokens)


def scram_login(mechanism: str, user: str, password: str) -> SaslMechanism:
    """Return the login in which client and broker prove to each other that they know the password."""

    def tokens() -> Tokens:
        from kafka_quotas.wire.connection.scram import ScramClient  # noqa: PLC0415 - hashes that only this login needs

        nonce = os.urandom(_NONCE_BYTES).hex()
        client = ScramClient(mechanism=mechanism, user=user, password=password, nonce=nonce)
        server_first = yield client.first_message()
        client.check_server((yield client.final_message(server_first)))

    return SaslMechanism(mechanism=mechanism, begin=tokens)


def oauth_login(source: TokenSource) -> SaslMechanism:
    """Return the login with a token, fetched anew each time, as connections are few and tokens expire."""

    def tokens() -> Tokens:
        pairs = [("auth", f"Bearer {source.fetch()}"), *source.extensions.items()]
        fields = (f"{name}={value}{_SEPARATOR}" for name, value in pairs)
        refusal = yield f"n,,{_SEPARATOR}{''.join(fields)}{_SEPARATOR}".encode()
        if refusal:  # the broker sends its reason, and waits for this before it ends the login
            yield _SEPARATOR.encode()

    return SaslMechanism(mechanism="OAUTHBEARER", begin=tokens)


_PLAIN: Final = "PLAIN"
_OAUTHBEARER: Final = "OAUTHBEARER"
_MECHANISMS: Final = (_PLAIN, "SCRAM-SHA-256", "SCRAM-SHA-512", _OAUTHBEARER)
_LOGIN: Final = "sasl.jaas.config"
_HANDLER: Final = "sasl.login.callback.handler.class"


def sasl_login(properties: Mapping[str, str]) -> SaslMechanism:
    """Return the mechanism with its credentials."""
    mechanism = properties.get("sasl.mechanism", "").strip()
    if mechanism not in _MECHANISMS:
        problem = f"sasl.mechanism {mechanism} is not supported" if mechanism else "sasl.mechanism is missing"
        raise UsageError(problem, hint=f"it is one of {', '.join(_MECHANISMS)}")
    if not properties.get(_LOGIN):
        raise UsageError(f"{_LOGIN} is missing", hint="it carries the user name and the password")
    login = parse_jaas(properties[_LOGIN], property_name=_LOGIN)
    if mechanism == _OAUTHBEARER:
        return oauth_login(token_source(properties, login))
    user, password = _credentials(properties, login)
    return plain_login(user, password) if mechanism == _PLAIN else scram_login(mechanism, user, password)


def _credentials(properties: Mapping[str, str], login: JaasLogin) -> tuple[str, str]:
    if properties.get(_HANDLER):
        raise UsageError(f"{_HANDLER} is not supported", hint=f"write username and password in {_LOGIN}")
    if login.options.get("tokenauth", "").lower() == "true":
        raise UsageError(f"{_LOGIN}: tokenauth (delegation tokens) is not supported")
    return login.option("username", property_name=_LOGIN), login.option("password", property_name=_LOGIN)
