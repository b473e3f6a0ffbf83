"""Logins for librdkafka by the names of Kafka's own client properties, beside those that librdkafka has.

A login entry (`sasl.jaas.config`) becomes what librdkafka calls the same: a user with a password, a keytab with a
principal, or a callback that returns tokens. Its AWS_MSK_IAM is OAUTHBEARER with a signed token, which MSK takes at the
same port. Without a login entry, and for other mechanisms, properties stay as they are.

**Source:** librdkafka 2.16, CONFIGURATION.md; confluent-kafka 2.16, `oauth_cb`.
"""

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.stores.security.kerberos import GSSAPI, LOGIN
from kafka_quotas.stores.security.msk import AWS_MSK_IAM, CLIENT_HANDLER
from kafka_quotas.stores.security.sasl import OAUTHBEARER, login_of

_HANDLER: Final = "sasl.client.callback.handler.class"
_MECHANISMS: Final = ("sasl.mechanism", "sasl.mechanisms")
_OF_JAVA: Final = (LOGIN, _HANDLER, "sasl.login.callback.handler.class", "sasl.kerberos.kinit.cmd", *_MECHANISMS)
NO_KERBEROS: Final = (
    "the wheel of confluent-kafka has no Kerberos: produce by --client raw --no-read-back, or build it with a "
    "librdkafka that has it: pip install --no-binary confluent-kafka confluent-kafka"
)
"""Hint for a librdkafka that refuses GSSAPI."""
_AGAIN_S: Final = 30.0
"""After which a token is asked for again that could not be had."""


def librdkafka_properties(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties with the login by librdkafka's names.

    Raises:
        UsageError: The login entry is wrong, or its credentials are missing.
        StoreRefusedError: There is no token to be had.
    """
    mechanism = _mechanism(properties)
    has_login = str(properties.get("security.protocol", "")).strip().upper().startswith("SASL_")
    if not has_login or not (properties.get(LOGIN) or mechanism == AWS_MSK_IAM):
        return dict(properties)
    texts = {name: value for name, value in properties.items() if isinstance(value, str)}
    if mechanism == AWS_MSK_IAM and texts.get(_HANDLER) not in (None, CLIENT_HANDLER):
        raise UsageError(f"{_HANDLER} is not supported", hint=f"it may be {CLIENT_HANDLER}")
    login = login_of({**texts, "sasl.mechanism": mechanism})
    own = {name: value for name, value in properties.items() if name not in _OF_JAVA}
    if login.bearer is None:
        return {**own, "sasl.mechanism": mechanism, **login.named}
    server = texts.get("bootstrap.servers", "").split(",", maxsplit=1)[0].strip().rpartition("://")[2]
    tokens = _Tokens(partial(login.bearer, server.rpartition(":")[0] or server), login.extensions)
    own = {name: value for name, value in own.items() if not name.startswith("sasl.oauthbearer.")}
    return {**own, "sasl.mechanism": OAUTHBEARER, "oauth_cb": tokens}


def refuse_without_kerberos(properties: Mapping[str, Any]) -> None:
    """Check that this librdkafka has Kerberos, as that of the wheel has not, if the login needs it."""
    if _mechanism(properties) != GSSAPI:
        return
    from confluent_kafka import KafkaException, Producer  # noqa: PLC0415 - loads librdkafka

    try:
        Producer({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": GSSAPI, "log_level": 0})
    except KafkaException as error:
        raise UsageError(f"sasl.mechanism {GSSAPI}: this librdkafka is built without it", hint=NO_KERBEROS) from error


def _mechanism(properties: Mapping[str, Any]) -> str:
    return next((str(properties[name]).strip().upper() for name in _MECHANISMS if properties.get(name)), "")


class _Tokens:
    """The callback for tokens, of which the first is fetched at once, as an error can't leave a callback.

    Where no new one can be had later, the last is used again, until the broker refuses it.
    """

    def __init__(self, fetch: Callable[[], tuple[str, float]], extensions: Mapping[str, str]) -> None:
        self._fetch = fetch
        self._more = ("", dict(extensions)) if extensions else ()
        self._next: tuple[str, float] | None = fetch()
        self._last = self._next[0]

    def __call__(self, _config: str) -> tuple[Any, ...]:
        try:
            self._last, ends_s = self._next or self._fetch()
        except KafkaQuotasError:
            ends_s = time.time() + _AGAIN_S
        self._next = None
        return self._last, ends_s, *self._more
