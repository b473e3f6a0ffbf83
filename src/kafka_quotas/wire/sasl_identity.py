"""Who a client says it is, out of the first token of a SASL exchange.

Nothing here checks a password or a signature: the broker does. A name from here is an identity only after the broker
has answered that the authentication succeeded. What can't be told from the token is said, never guessed: GSSAPI
tokens are opaque, and SCRAM with a delegation token names the token and not its owner.

**Source:** RFC 4616, RFC 5802, RFC 7628; `PlainSaslServer`, `ScramMessages.ClientFirstMessage`, `ScramFormatter`,
`OAuthBearerClientInitialResponse`, Kafka 4.1; KIP-48 for delegation tokens, KIP-255 for OAUTHBEARER.
"""

import binascii
import json
import re
from base64 import urlsafe_b64decode
from dataclasses import dataclass
from typing import Final

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.utf8 import well_formed

PLAIN: Final = "PLAIN"
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
OAUTHBEARER: Final = "OAUTHBEARER"

_SCRAM_FIRST: Final = re.compile(
    r"n,(?:a=(?P<authzid>[^,]*))?,(?:m=[^,]*,)?n=(?P<name>[^,]+),r=(?P<nonce>[^,]+)(?P<extensions>(?:,[^,]*)*)"
)
_OAUTH_FIRST: Final = re.compile(r"n,(?:a=(?P<authzid>[^,]*))?,\x01(?P<pairs>(?:[A-Za-z]+=[^\x01]*\x01)+)\x01?")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramIdentity:
    """The name in a SCRAM client's first message; a delegation token's id if `is_delegation_token`."""

    name: str
    is_delegation_token: bool


def plain_user(token: bytes) -> str:
    """Return the user of a PLAIN token: `authzid NUL user NUL password`, authzid empty or the user.

    *Raises* `ProtocolError` if it is none; no part of it is in the message.
    """
    parts = _text(token).split("\0")
    if len(parts) != 3:
        raise ProtocolError("a PLAIN token has not exactly three parts")
    authzid, user, password = parts
    if not user or not password:
        raise ProtocolError("a PLAIN token has no user or no password")
    if authzid not in ("", user):
        raise ProtocolError("a PLAIN token asks to act as another user")
    return user


def scram_identity(token: bytes) -> ScramIdentity:
    """Return the name in the first message of a SCRAM client, its `=2C` and `=3D` turned back into `,` and `=`.

    *Raises* `ProtocolError` if the token is no such message.
    """
    match = _SCRAM_FIRST.fullmatch(_text(token))
    if match is None:
        raise ProtocolError("a SCRAM exchange doesn't start with a client's first message")
    name = _unescaped(match["name"])
    if match["authzid"] and _unescaped(match["authzid"]) != name:
        raise ProtocolError("a SCRAM client asks to act as another user")
    is_delegation_token = _pairs(match["extensions"], ",").get("tokenauth", "").lower() == "true"
    return ScramIdentity(name=name, is_delegation_token=is_delegation_token)


def oauthbearer_subject(token: bytes, *, claim: str = "sub") -> str:
    """Return the named claim of the JSON web token in an OAUTHBEARER client's first message.

    `claim` is the broker's `sasl.oauthbearer.sub.claim.name`. *Raises* `ProtocolError` if the message is none, its
    token is opaque (no JSON web token) or the claim is absent or no text.
    """
    match = _OAUTH_FIRST.fullmatch(_text(token))
    scheme, _, bearer = (_pairs(match["pairs"], "\x01") if match else {}).get("auth", "").partition(" ")
    if scheme.lower() != "bearer":
        raise ProtocolError("an OAUTHBEARER exchange doesn't start with a bearer token")
    parts = bearer.strip().split(".")
    if len(parts) != 3:
        raise ProtocolError("an OAUTHBEARER token is no JSON web token")
    subject = _claims(parts[1]).get(claim)
    if not isinstance(subject, str) or not subject:
        raise ProtocolError(f"an OAUTHBEARER token has no claim {claim!r} that is a text")
    return well_formed(subject)


def _pairs(text: str, separator: str) -> dict[str, str]:
    """Return the `name=value` pairs of a text."""
    split = (pair.partition("=") for pair in text.split(separator) if pair)
    return {name: value for name, _, value in split}


def _claims(encoded: str) -> dict[str, object]:
    try:
        claims = json.loads(urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)))
    except (ValueError, binascii.Error, RecursionError) as error:
        raise ProtocolError("an OAUTHBEARER token can't be decoded") from error
    if not isinstance(claims, dict):
        raise ProtocolError("an OAUTHBEARER token holds no claims")
    return claims


def _unescaped(name: str) -> str:
    text = name.replace("=2C", ",")
    if "=" in text.replace("=3D", ""):
        raise ProtocolError("a SCRAM name is wrongly escaped")
    return text.replace("=3D", "=")


def _text(token: bytes) -> str:
    try:
        return token.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ProtocolError("an authentication token is not UTF-8") from error
