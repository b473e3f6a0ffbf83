"""A client of one broker, which connects, settles versions and logs in at the first request and after each failure.

Contract: any number of threads may use a client, one request at a time. A network failure is an `OSError` and drops the
connection. An error that another attempt would not mend is a `StoreError`.
"""

import threading
from collections.abc import Mapping
from typing import Final, TypeVar

from kafka_quotas.core.errors import ProtocolError, StoreError
from kafka_quotas.stores.kafka.connection import BrokerConnection, BrokerRefusedError, ShutOutError, tls_refusal
from kafka_quotas.stores.kafka.properties import KafkaAccess
from kafka_quotas.stores.reachability import ServerAddress
from kafka_quotas.wire.client.request import ClientRequest, VersionRange, VersionRequest, version_of
from kafka_quotas.wire.protocol.error_code import ErrorCode

Answer = TypeVar("Answer")
_TLS_HINT: Final = "if the port speaks TLS, set security.protocol to SSL or SASL_SSL; or is it not Kafka's?"
_LOGIN_HINT: Final = "if the port wants a login, set security.protocol to SASL_PLAINTEXT or SASL_SSL, and sasl.*"


class BrokerClient:
    """Requests to one broker over one connection."""

    def __init__(self, address: ServerAddress, *, access: KafkaAccess, url: str) -> None:
        self._address = address
        self._server = str(address)
        self._url = url
        self._access = access
        self._lock = threading.Lock()
        self._channel: BrokerConnection | None = None
        self._offered: Mapping[int, VersionRange] = {}
        self._served = False
        self._closed = False

    def ask(
        self,
        request: ClientRequest[Answer],
        *,
        contact_deadline_s: float,
        deadline_s: float,
        begin_deadline_s: float | None = None,
    ) -> Answer:
        """Return the answer to a request.

        A connection that has to be made first is ready by `contact_deadline_s`. The answer begins to arrive by
        `begin_deadline_s` (None: `deadline_s`), and is whole by `deadline_s`.

        Raises:
            StoreRefusedError: The broker refuses the connection or does not know the request.
            StoreError: The broker's bytes are no answer.
            OSError: A failure that may pass.
        """
        with self._lock:
            try:
                channel = self._channel or self._opened(contact_deadline_s)
                version = self._version(request)
                answer = channel.exchange(request, version, deadline_s=deadline_s, begin_deadline_s=begin_deadline_s)
            except OSError as error:
                raise self._dropped(error) from error
            except ProtocolError as error:
                self._drop()
                hint = error.hint or "check that the port speaks Kafka"
                raise StoreError(f"{self._server} failed: {error.message}", hint=hint) from error
            except BaseException:  # nobody knows how far an interrupted exchange came
                self._drop()
                raise
            self._served = True
            return answer

    def close(self) -> None:
        """Close the connection, which ends a request in another thread with an error."""
        self._closed = True
        channel = self._channel
        if channel is not None:
            channel.abort()
        with self._lock:
            self._drop()

    def _opened(self, deadline_s: float) -> BrokerConnection:
        if self._closed:
            raise ConnectionError("closed")
        self._served = False
        self._channel = channel = BrokerConnection(
            self._address, client_id=self._access.client_id, deadline_s=deadline_s, tls=self._access.tls
        )
        self._offered = self._settled_versions(channel, deadline_s)
        if self._access.login is not None:
            from kafka_quotas.stores.kafka.authenticator import SaslAuthenticator  # noqa: PLC0415 - most clusters need none

            SaslAuthenticator(channel, version_of=self._version, url=self._url, deadline_s=deadline_s).log_in(
                self._access.login
            )
        return channel

    def _settled_versions(self, channel: BrokerConnection, deadline_s: float) -> Mapping[int, VersionRange]:
        request = VersionRequest()
        try:
            offered = channel.exchange(request, request.versions.highest, deadline_s=deadline_s)
            # A broker that does not know this version answers with an error in version 0, which all take (KIP-511).
            if offered.error_code == ErrorCode.UNSUPPORTED_VERSION:
                offered = channel.exchange(request, request.versions.lowest, deadline_s=deadline_s)
        except ConnectionError as error:
            # A TLS port ends the connection at the first plaintext bytes.
            raise ShutOutError(f"{self._server} closed the connection without an answer", hint=_TLS_HINT) from error
        except TimeoutError:
            if channel.speaks_http():
                raise StoreError(
                    f"{self._server} speaks HTTP, not Kafka", hint="name the port of a broker's listener"
                ) from None
            raise
        if offered.error_code:
            raise ProtocolError(f"it answered the request for its versions with error {offered.error_code}")
        return offered.ranges

    def _version(self, request: ClientRequest[Answer]) -> int:
        version = version_of(request, self._offered)
        if version is not None:
            return version
        theirs = self._offered.get(request.api_key)
        if theirs is not None and theirs.lowest > request.versions.highest:
            problem, hint = f"are too new for our {request.name} requests", "a newer kafka-quotas may know them"
        else:
            problem = f"have no {request.name} requests: they are older than Kafka {request.broker_since}"
            hint = "set quotas in their ZooKeeper instead: --zookeeper HOST:2181/CHROOT"
        raise BrokerRefusedError(f"the brokers at {self._url} {problem}", code="UNSUPPORTED_VERSION", hint=hint)

    def _dropped(self, error: OSError) -> OSError | BrokerRefusedError:
        """Drop the connection after a network failure, and return the error to raise."""
        connected = self._channel is not None
        self._drop()
        if self._access.tls is not None:
            from ssl import SSLError  # noqa: PLC0415 - only TLS needs it

            if isinstance(error, SSLError):
                return tls_refusal(error, server=self._server)
        # A port that wants a login answers ApiVersions, and closes the connection at the first other request.
        shut_out = connected and not self._served and self._access.login is None
        if shut_out and isinstance(error, ConnectionError) and not isinstance(error, ShutOutError):
            return ShutOutError(f"{self._server} closed the connection at the first request", hint=_LOGIN_HINT)
        return error

    def _drop(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
