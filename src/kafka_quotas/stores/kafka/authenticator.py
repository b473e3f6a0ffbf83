"""A SASL login at a broker: the handshake over the mechanism and the exchange of tokens.

**Source:** KIP-43, KIP-152; `SaslClientAuthenticator`, Kafka 4.1.
"""

from collections.abc import Callable
from typing import Any, Final

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.stores.kafka.connection import BrokerConnection, BrokerRefusedError
from kafka_quotas.stores.security.sasl import SaslMechanism
from kafka_quotas.wire.client.request import ClientRequest
from kafka_quotas.wire.client.sasl import AuthenticateRequest, HandshakeRequest
from kafka_quotas.wire.protocol.error_code import ErrorCode

_HINT: Final = "check security.protocol and sasl.* in the file named with --command-config"
_RAW_TOKENS_UNTIL: Final = 0
"""Last version of the handshake after which tokens travel in raw frames."""


class SaslAuthenticator:
    """A login over one connection, with requests in the versions that `version_of` returns."""

    def __init__(
        self, channel: BrokerConnection, *, version_of: Callable[[ClientRequest[Any]], int], url: str, deadline_s: float
    ) -> None:
        self._channel = channel
        self._version_of = version_of
        self._url = url
        self._deadline_s = deadline_s

    def log_in(self, login: SaslMechanism) -> None:
        """Authenticate at the broker by the mechanism.

        Raises:
            BrokerRefusedError: The broker does not take the mechanism or the credentials.
            OSError: The connection fails.
        """
        handshake = HandshakeRequest(mechanism=login.mechanism)
        version = self._version_of(handshake)
        answer = self._channel.exchange(handshake, version, deadline_s=self._deadline_s)
        if answer.error_code:
            raise self._no_login(answer.error_code, answer.offered)
        tokens = login.begin()
        try:
            token = next(tokens)
            while True:
                token = tokens.send(self._answered(token, raw=version <= _RAW_TOKENS_UNTIL))
        except StopIteration:
            return
        except ConnectionError as error:  # what a broker does with a false password after a handshake of version 0
            raise self._refused("") from error
        except ProtocolError as error:
            raise self._refused(f": {error.message}") from error

    def _answered(self, token: bytes, *, raw: bool) -> bytes:
        if raw:
            return self._channel.exchange_raw(token, deadline_s=self._deadline_s)
        request = AuthenticateRequest(token=token)
        answer = self._channel.exchange(request, self._version_of(request), deadline_s=self._deadline_s)
        if answer.error_code:
            raise self._refused("")
        return answer.token

    def _refused(self, detail: str) -> BrokerRefusedError:
        return BrokerRefusedError(
            f"{self._url} refused the credentials{detail}", code="SASL_AUTHENTICATION_FAILED", hint=_HINT
        )

    def _no_login(self, code: int, offered: tuple[str, ...]) -> BrokerRefusedError:
        if code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            problem, name = f"does not take this sasl.mechanism, but {', '.join(offered)}", "UNSUPPORTED_SASL_MECHANISM"
        elif code == ErrorCode.ILLEGAL_SASL_STATE:
            problem, name = "takes no logins at this port", "ILLEGAL_SASL_STATE"
        else:
            problem, name = f"refused the login with error {code}", "SASL_AUTHENTICATION_FAILED"
        return BrokerRefusedError(f"{self._url} {problem}", code=name, hint=_HINT)
