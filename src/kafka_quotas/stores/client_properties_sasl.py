"""The SASL side of Kafka's client properties, as a login at a broker.

| property | meaning |
|---|---|
| `sasl.mechanism` | PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER |
| `sasl.jaas.config` | the login: `username` and `password`, or the options of OAUTHBEARER |
"""

from collections.abc import Mapping
from typing import Final

from kafka_quotas.core.errors import UsageError
from kafka_quotas.stores.client_properties_oauth import token_source
from kafka_quotas.stores.jaas import JaasLogin, parse_jaas
from kafka_quotas.stores.kafka_login import KafkaLogin, oauth_login, plain_login, scram_login

_PLAIN: Final = "PLAIN"
_OAUTHBEARER: Final = "OAUTHBEARER"
_MECHANISMS: Final = (_PLAIN, "SCRAM-SHA-256", "SCRAM-SHA-512", _OAUTHBEARER)
_LOGIN: Final = "sasl.jaas.config"
_HANDLER: Final = "sasl.login.callback.handler.class"


def sasl_login(properties: Mapping[str, str]) -> KafkaLogin:
    """The mechanism with its credentials.

    Raises `UsageError` for a property that can't be meant or is not supported.
    """
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
    """The user name and the password."""
    if properties.get(_HANDLER):
        raise UsageError(f"{_HANDLER} is not supported", hint=f"write username and password in {_LOGIN}")
    if login.options.get("tokenauth", "").lower() == "true":
        raise UsageError(f"{_LOGIN}: tokenauth (delegation tokens) is not supported")
    return login.option("username", property_name=_LOGIN), login.option("password", property_name=_LOGIN)
