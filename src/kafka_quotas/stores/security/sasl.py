"""SASL logins at a broker, mechanism by mechanism, from Kafka's client properties.

A login is a generator: it yields the client's tokens and is sent the broker's. It ends when the client is content and
raises `ProtocolError` if the broker could not prove what it has to. SCRAM uses names and passwords unchanged, as Kafka
does: without SASLprep. There is no channel binding.

**Source:** KIP-12, KIP-84, KIP-255, KIP-768, KIP-1139; RFC 4616, 5802, 7628, 7677; `ScramSaslClient`,
`OAuthBearerSaslClient`, `OAuthBearerUnsecuredLoginCallbackHandler`, `ClientCredentialsJwtRetriever`, `ScramFormatter`,
Kafka 4.1; `JaasConfig` (4.0), which reads a login entry with a `StreamTokenizer`.
"""

import base64
import hashlib
import hmac
import json
import os
import re
import time
from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import quote_plus, unquote, urlsplit

from kafka_quotas.core.errors import ProtocolError, StoreRefusedError, UsageError
from kafka_quotas.core.formats.documents import load_json, read_text
from kafka_quotas.stores.security.kerberos import GSSAPI, LOGIN, kerberos_identity, kerberos_library
from kafka_quotas.stores.security.msk import AWS_MSK_IAM, iam_identity

Tokens: TypeAlias = Generator[bytes, bytes, None]
_FLAGS = {"required", "requisite", "sufficient", "optional"}
_TOKEN = re.compile(r"""\s*(?:"((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)'|([=;])|([^\s=;"']+))""", re.DOTALL)
_JAAS_HINT = (
    'for example: org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="..";'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JaasLogin:
    """One login entry: the class that logs in, and its options."""

    module: str
    options: Mapping[str, str] = field(repr=False)

    def option(self, name: str, *, property_name: str) -> str:
        """Return the value of an option, which the property has to have."""
        try:
            return self.options[name]
        except KeyError:
            raise UsageError(f"{property_name} has no {name}", hint=_JAAS_HINT) from None


def parse_jaas(text: str, *, property_name: str) -> JaasLogin:
    """Return the one login entry in the value of a property, of which no error shows any text."""
    words = _words(text, property_name)
    if len(words) < 3 or words[1].lower() not in _FLAGS or words[-1] != ";":
        raise UsageError(f"{property_name} is not a JAAS login entry", hint=_JAAS_HINT)
    rest = words[2:-1]
    if len(rest) % 3 or any(mark != "=" for mark in rest[1::3]):
        raise UsageError(f"{property_name} has an option that is not name=value", hint=_JAAS_HINT)
    return JaasLogin(module=words[0], options=dict(zip(rest[0::3], rest[2::3], strict=True)))


def _words(text: str, property_name: str) -> list[str]:
    words, position, stripped = [], 0, text.strip()
    while position < len(stripped):
        match = _TOKEN.match(stripped, position)
        if match is None:
            raise UsageError(f"{property_name} has a quote that is not closed", hint=_JAAS_HINT)
        double, single, mark, bare = match.groups()
        quoted = double if double is not None else single
        words.append(re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else mark or bare)
        position = match.end()
    return words


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


def scram_tokens(*, mechanism: str, user: str, password: str, nonce: str) -> Tokens:
    """Yield the client's messages of one login, and check the server's proof that it knows the password.

    `nonce` is the client's random text: printable ASCII without commas, fresh for every login.
    """
    make_hash = _HASHES[mechanism]

    def signed(key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, make_hash().name)

    name = user.replace("=", "=3D").replace(",", "=2C")
    first_bare = f"n={name},r={nonce}"
    server_first = yield f"{_NO_CHANNEL_BINDING}{first_bare}".encode()
    fields = _fields(server_first)
    if _MANDATORY in fields:  # RFC 5802, section 5.1: a client that does not know it must end the login
        raise ProtocolError("the server asks for an extension of SCRAM that we don't know")
    both, salt, iterations = fields.get("r", ""), _decoded(fields.get("s", "")), fields.get("i", "")
    if not both.startswith(nonce) or both == nonce:
        raise ProtocolError("the server did not take up our nonce")
    if not iterations.isdecimal() or not FEWEST_ITERATIONS <= int(iterations) <= MOST_ITERATIONS:
        raise ProtocolError(f"the server asks for {iterations or 'no'} iterations")
    without_proof = f"c={_encoded(_NO_CHANNEL_BINDING.encode())},r={both}"
    auth_message = f"{first_bare},{server_first.decode()},{without_proof}".encode()
    salted = hashlib.pbkdf2_hmac(make_hash().name, password.encode(), salt, int(iterations))
    client_key = signed(salted, b"Client Key")
    signature = signed(make_hash(client_key).digest(), auth_message)
    proof = bytes(ours ^ theirs for ours, theirs in zip(client_key, signature, strict=True))
    server_final = yield f"{without_proof},p={_encoded(proof)}".encode()
    shown = _decoded(_fields(server_final).get("v", ""))
    if not hmac.compare_digest(shown, signed(signed(salted, b"Server Key"), auth_message)):
        raise ProtocolError("the server could not prove that it knows the password")


def _fields(message: bytes) -> dict[str, str]:
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


ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url"
_PREFIX: Final = "sasl.oauthbearer."
_TIMEOUT_S: Final = 10.0
_LARGEST_ANSWER: Final = 1024 * 1024
_HANDLER: Final = "sasl.login.callback.handler.class"
_HANDLERS: Final = ("OAuthBearerLoginCallbackHandler", "OAuthBearerUnsecuredLoginCallbackHandler")
_RETRIEVER: Final = f"{_PREFIX}jwt.retriever.class"
_RETRIEVERS: Final = ("DefaultJwtRetriever", "FileJwtRetriever", "ClientCredentialsJwtRetriever")
_UNSECURED: Final = "unsecuredLogin"
_DEFAULT_LIFETIME_S: Final = 3600.0


TokenSource = tuple[Callable[[], str], Mapping[str, str]]
"""Returns a new token, or raises a `StoreRefusedError`; and the SASL extensions that go with the tokens."""


def token_source(properties: Mapping[str, str], login: JaasLogin) -> TokenSource:
    """Return the source of tokens, without reading or requesting one yet."""
    _refuse_class(properties, _HANDLER, _HANDLERS)
    _refuse_class(properties, _RETRIEVER, _RETRIEVERS)
    endpoint = properties.get(ENDPOINT, "").strip()
    if not endpoint:
        extensions = _with_prefix(login.options, f"{_UNSECURED}Extension_")
        return partial(_unsigned, _claims(login.options)), extensions
    scheme = urlsplit(endpoint).scheme.lower()
    extensions = _with_prefix(login.options, "extension_")
    if scheme == "file":
        path = Path(unquote(urlsplit(endpoint).path))
        return partial(_from_file, path), extensions
    if scheme not in ("http", "https"):
        raise UsageError(f"{ENDPOINT}: {endpoint} is not supported", hint="it begins with https:// or file://")
    tls = sorted(name for name in login.options if name.startswith("ssl"))
    if tls:
        raise UsageError(
            f"{LOGIN}: {tls[0]} is not supported", hint="the endpoint is checked by the system's authorities"
        )
    return partial(_from_endpoint, endpoint, *_request(properties, login)), extensions


def _refuse_class(properties: Mapping[str, str], name: str, known: tuple[str, ...]) -> None:
    given = properties.get(name, "").strip()
    if given and given.rpartition(".")[2] not in known:
        raise UsageError(f"{name}: {given} is not supported", hint=f"it may be {' or '.join(known)}")


def _with_prefix(options: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): value for name, value in options.items() if name.startswith(prefix)}


def _claims(options: Mapping[str, str]) -> dict[str, Any]:
    try:
        claims: dict[str, Any] = {
            **_with_prefix(options, f"{_UNSECURED}StringClaim_"),
            **{name: float(text) for name, text in _with_prefix(options, f"{_UNSECURED}NumberClaim_").items()},
            "lifetime_s": float(options.get(f"{_UNSECURED}LifetimeSeconds", _DEFAULT_LIFETIME_S)),
        }
    except ValueError as error:
        raise UsageError(f"{LOGIN} has a claim that is not a number") from error
    lists = _with_prefix(options, f"{_UNSECURED}ListClaim_")
    claims |= {name: [item for item in text[1:].split(text[:1]) if item] for name, text in lists.items() if text}
    principal = options.get(f"{_UNSECURED}PrincipalClaimName", "sub")
    if principal not in claims:
        raise UsageError(f"{LOGIN} has no {_UNSECURED}StringClaim_{principal}", hint=f"or name an endpoint: {ENDPOINT}")
    return claims


def _unsigned(claims: Mapping[str, Any]) -> str:
    now = time.time()
    # A broker allows no skew by default and refuses what is issued in its future, as by a clock that was set back.
    body = {"iat": int(now) - 1, "exp": now + claims["lifetime_s"], **claims}
    del body["lifetime_s"]
    return f"{_base64_url({'alg': 'none'})}.{_base64_url(body)}."


def _base64_url(value: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def _from_file(path: Path) -> str:
    try:
        return read_text(path, "ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise StoreRefusedError(f"{ENDPOINT}: cannot read a token from {path}") from error


def _request(properties: Mapping[str, str], login: JaasLogin) -> tuple[str, bytes]:
    credentials = f"{_PREFIX}client.credentials.client."
    client_id = properties.get(f"{credentials}id") or login.option("clientId", property_name=LOGIN)
    secret = properties.get(f"{credentials}secret") or login.option("clientSecret", property_name=LOGIN)
    if properties.get(f"{_PREFIX}header.urlencode", "").strip().lower() == "true":
        client_id, secret = quote_plus(client_id), quote_plus(secret)
    scope = properties.get(f"{_PREFIX}scope") or login.options.get("scope", "")
    body = "grant_type=client_credentials" + (f"&scope={quote_plus(scope)}" if scope else "")
    return f"Basic {base64.b64encode(f'{client_id}:{secret}'.encode()).decode()}", body.encode()


def _from_endpoint(url: str, authorization: str, body: bytes) -> str:
    from http.client import HTTPException  # noqa: PLC0415 - only this kind of login needs a web client
    from urllib.error import HTTPError  # noqa: PLC0415
    from urllib.request import HTTPRedirectHandler, Request, build_opener  # noqa: PLC0415

    class RefusedRedirects(HTTPRedirectHandler):
        """A handler that follows no redirect, which would take the credentials to another server."""

        def redirect_request(self, *_: Any, **__: Any) -> None:
            return None

    headers = {
        "Authorization": authorization,
        "Accept": "application/json",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    try:
        request = Request(url, data=body, headers=headers)  # noqa: S310 - http only
        with build_opener(RefusedRedirects).open(request, timeout=_TIMEOUT_S) as response:
            token = load_json(response.read(_LARGEST_ANSWER))["access_token"]
    except (OSError, HTTPException) as error:
        if isinstance(error, HTTPError):
            error.close()
        raise StoreRefusedError(
            f"{ENDPOINT}: {url} gave no token ({error})", hint="check clientId and clientSecret"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise StoreRefusedError(f"{ENDPOINT}: {url} answered without an access_token") from error
    return str(token)


_NONCE_BYTES: Final = 24
_SEPARATOR: Final = "\x01"


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslMechanism:
    """A mechanism with its credentials, which no `repr` shows."""

    mechanism: str
    begin: Callable[[str], Tokens] = field(repr=False)
    """Begins a login at a broker's host."""
    named: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The credentials by librdkafka's names."""
    bearer: Callable[[str], tuple[str, float]] | None = field(default=None, repr=False)
    """Returns a token for a broker's host in place of credentials, and the second since 1970 to fetch the next one."""
    extensions: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The SASL extensions that go with the tokens."""


def password_login(mechanism: str, user: str, password: str) -> SaslMechanism:
    """Return a login with a password, which PLAIN sends, and of which SCRAM proves that both know it."""

    def begin(_host: str) -> Tokens:
        if mechanism == PLAIN:
            return iter_plain()
        nonce = os.urandom(_NONCE_BYTES).hex()
        return scram_tokens(mechanism=mechanism, user=user, password=password, nonce=nonce)

    def iter_plain() -> Tokens:
        yield f"\0{user}\0{password}".encode()

    named = {"sasl.username": user, "sasl.password": password}
    return SaslMechanism(mechanism=mechanism, begin=begin, named=named)


def _oauth_login(source: TokenSource) -> SaslMechanism:
    """Return the login with a token, fetched anew each time, as connections are few and tokens expire."""
    fetch, extensions = source

    def tokens(_host: str) -> Tokens:
        pairs = [("auth", f"Bearer {fetch()}"), *extensions.items()]
        fields = (f"{name}={value}{_SEPARATOR}" for name, value in pairs)
        refusal = yield f"n,,{_SEPARATOR}{''.join(fields)}{_SEPARATOR}".encode()
        if refusal:  # the broker sends its reason, and waits for this before it ends the login
            yield _SEPARATOR.encode()

    def bearer(_host: str) -> tuple[str, float]:
        return fetch(), time.time() + _TOKEN_S

    return SaslMechanism(mechanism=OAUTHBEARER, begin=tokens, bearer=bearer, extensions=extensions)


def _msk_login(options: Mapping[str, str]) -> SaslMechanism:
    """Return the login with a request that the credentials of AWS sign."""
    identity = iam_identity(options)

    def tokens(host: str) -> Tokens:
        if not (yield identity.signed_json(host)):  # MSK answers with the number of the request that it took
            raise ProtocolError("the broker does not confirm the signed request")

    return SaslMechanism(mechanism=AWS_MSK_IAM, begin=tokens, bearer=identity.bearer_token)


PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
"""The mechanism of tokens."""
_TOKEN_S: Final = 300.0
"""After which a token is fetched anew, whose own end only its endpoint knows."""
_WITHOUT_LOGIN: Final = (AWS_MSK_IAM, GSSAPI)
_MECHANISMS: Final = (PLAIN, *_HASHES, OAUTHBEARER, *_WITHOUT_LOGIN)


def sasl_login(properties: Mapping[str, str]) -> SaslMechanism:
    """Return the mechanism with its credentials, which need no library that is missing here."""
    login = login_of(properties)
    if login.mechanism == GSSAPI:
        kerberos_library()
    return login


def login_of(properties: Mapping[str, str]) -> SaslMechanism:
    """Return the mechanism with its credentials."""
    mechanism = properties.get("sasl.mechanism", "").strip()
    if mechanism not in _MECHANISMS:
        problem = f"sasl.mechanism {mechanism} is not supported" if mechanism else "sasl.mechanism is missing"
        raise UsageError(problem, hint=f"it is one of {', '.join(_MECHANISMS)}")
    if mechanism in _WITHOUT_LOGIN and not properties.get(LOGIN):
        login = JaasLogin(module="", options={})
    elif properties.get(LOGIN):
        login = parse_jaas(properties[LOGIN], property_name=LOGIN)
    else:
        raise UsageError(f"{LOGIN} is missing", hint="it carries the user name and the password")
    if mechanism == AWS_MSK_IAM:
        return _msk_login(login.options)
    if mechanism == GSSAPI:
        who = kerberos_identity(properties, login.options)
        return SaslMechanism(mechanism=GSSAPI, begin=who.tokens, named=who.named)
    if mechanism == OAUTHBEARER:
        return _oauth_login(token_source(properties, login))
    if properties.get(_HANDLER):
        raise UsageError(f"{_HANDLER} is not supported", hint=f"write username and password in {LOGIN}")
    if login.options.get("tokenauth", "").lower() == "true":
        raise UsageError(f"{LOGIN}: tokenauth (delegation tokens) is not supported")
    user, password = (login.option(name, property_name=LOGIN) for name in ("username", "password"))
    return password_login(mechanism, user, password)
