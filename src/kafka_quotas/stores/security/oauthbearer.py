"""Sources of OAUTHBEARER tokens, by Kafka's client properties.

| property | meaning |
|---|---|
| `sasl.oauthbearer.token.endpoint.url` | `file:///...`: a file with the token; `https://...`: an endpoint |
| `clientId`, `clientSecret`, `scope` in `sasl.jaas.config` | the client credentials for the endpoint |
| `sasl.oauthbearer.client.credentials.client.id`, `.client.secret`, `sasl.oauthbearer.scope` | the same, since 4.1 |
| `unsecuredLoginStringClaim_sub` and other claims in `sasl.jaas.config` | without an endpoint: an unsigned token |
| `extension_NAME`, `unsecuredLoginExtension_NAME` in `sasl.jaas.config` | SASL extensions |

**Source:** KIP-255, KIP-768, KIP-1139; `OAuthBearerUnsecuredLoginCallbackHandler`, `ClientCredentialsJwtRetriever`.
"""

import base64
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote_plus, unquote, urlsplit

from kafka_quotas.core.errors import StoreRefusedError, UsageError
from kafka_quotas.core.formats.documents import load_json, read_text
from kafka_quotas.stores.security.jaas import JaasLogin

ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url"
_LOGIN: Final = "sasl.jaas.config"
_PREFIX: Final = "sasl.oauthbearer."
_TIMEOUT_S: Final = 10.0
_LARGEST_ANSWER: Final = 1024 * 1024
_HANDLER: Final = "sasl.login.callback.handler.class"
_HANDLERS: Final = ("OAuthBearerLoginCallbackHandler", "OAuthBearerUnsecuredLoginCallbackHandler")
_RETRIEVER: Final = f"{_PREFIX}jwt.retriever.class"
_RETRIEVERS: Final = ("DefaultJwtRetriever", "FileJwtRetriever", "ClientCredentialsJwtRetriever")
_UNSECURED: Final = "unsecuredLogin"
_DEFAULT_LIFETIME_S: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSource:
    """A source of tokens, with the SASL extensions that go with them."""

    fetch: Callable[[], str]
    """Returns a new token, and raises a `StoreRefusedError` where the source gives none."""
    extensions: Mapping[str, str] = field(default_factory=dict)
    """SASL extensions by name."""


def token_source(properties: Mapping[str, str], login: JaasLogin) -> TokenSource:
    """Return the source of tokens, without reading or requesting one yet."""
    _refuse_class(properties, _HANDLER, _HANDLERS)
    _refuse_class(properties, _RETRIEVER, _RETRIEVERS)
    endpoint = properties.get(ENDPOINT, "").strip()
    if not endpoint:
        extensions = _with_prefix(login.options, f"{_UNSECURED}Extension_")
        return TokenSource(fetch=partial(_unsigned, _claims(login.options)), extensions=extensions)
    scheme = urlsplit(endpoint).scheme.lower()
    extensions = _with_prefix(login.options, "extension_")
    if scheme == "file":
        path = Path(unquote(urlsplit(endpoint).path))
        return TokenSource(fetch=partial(_from_file, path), extensions=extensions)
    if scheme not in ("http", "https"):
        raise UsageError(f"{ENDPOINT}: {endpoint} is not supported", hint="it begins with https:// or file://")
    tls = sorted(name for name in login.options if name.startswith("ssl"))
    if tls:
        raise UsageError(
            f"{_LOGIN}: {tls[0]} is not supported", hint="the endpoint is checked by the system's authorities"
        )
    return TokenSource(fetch=partial(_from_endpoint, endpoint, *_request(properties, login)), extensions=extensions)


def _refuse_class(properties: Mapping[str, str], name: str, known: tuple[str, ...]) -> None:
    given = properties.get(name, "").strip()
    if given and given.rpartition(".")[2] not in known:
        raise UsageError(f"{name}: {given} is not supported", hint=f"it may be {' or '.join(known)}")


def _with_prefix(options: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): value for name, value in options.items() if name.startswith(prefix)}


def _claims(options: Mapping[str, str]) -> dict[str, Any]:
    """Return the claims of an unsigned token, with `lifetime_s` among them."""
    try:
        claims: dict[str, Any] = {
            **_with_prefix(options, f"{_UNSECURED}StringClaim_"),
            **{name: float(text) for name, text in _with_prefix(options, f"{_UNSECURED}NumberClaim_").items()},
            "lifetime_s": float(options.get(f"{_UNSECURED}LifetimeSeconds", _DEFAULT_LIFETIME_S)),
        }
    except ValueError as error:
        raise UsageError(f"{_LOGIN} has a claim that is not a number") from error
    lists = _with_prefix(options, f"{_UNSECURED}ListClaim_")
    claims |= {name: [item for item in text[1:].split(text[:1]) if item] for name, text in lists.items() if text}
    principal = options.get(f"{_UNSECURED}PrincipalClaimName", "sub")
    if principal not in claims:
        raise UsageError(
            f"{_LOGIN} has no {_UNSECURED}StringClaim_{principal}", hint=f"or name an endpoint: {ENDPOINT}"
        )
    return claims


def _unsigned(claims: Mapping[str, Any]) -> str:
    """Return an unsigned token with the claims, valid from now on."""
    now = time.time()
    body = {"iat": now, "exp": now + claims["lifetime_s"], **claims}
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
    """Return the `Authorization` header and the body of a request for a token."""
    credentials = f"{_PREFIX}client.credentials.client."
    client_id = properties.get(f"{credentials}id") or login.option("clientId", property_name=_LOGIN)
    secret = properties.get(f"{credentials}secret") or login.option("clientSecret", property_name=_LOGIN)
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
