"""The connection to a Kafka cluster: kafka-python's connection manager, made at first use, its errors in our words.

Contract: a request is repeated until the time is up where the connection fails or a broker asks to try again; what is
sent here (setting a key to a value, reading) does no harm when done twice.
"""

import threading
from typing import Any, Final

import kafka.errors as kafka_errors
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.protocol.metadata import MetadataRequest

from kafka_quotas.core.errors import InvalidQuotaError, StoreError, StoreRefusedError, StoreUnreachableError
from kafka_quotas.stores.kafka_properties import kafka_arguments
from kafka_quotas.stores.library_logging import quieten
from kafka_quotas.stores.polling import Polling
from kafka_quotas.stores.reachability import check_reachable
from kafka_quotas.stores.settings import StoreSettings
from kafka_quotas.stores.store_url import StoreUrl

RETRY_INTERVAL_S: Final = 0.1
LARGEST_RESPONSE: Final = 256 * 1024 * 1024
"""Bytes; a hundred thousand entities take about 10 MB."""
_AUTH_HINT: Final = "check security.protocol and sasl.* in the file named with --command-config"
_UNKNOWN: Final = "UNKNOWN_SERVER_ERROR"
_ACL_RESOURCES: Final = {
    kafka_errors.ClusterAuthorizationFailedError: "cluster",
    kafka_errors.TopicAuthorizationFailedError: "topic",
}
"""What an ACL is missing on, by the error that says so."""
_INTERRUPTED: Final = (
    kafka_errors.KafkaConnectionError,
    kafka_errors.NodeNotReadyError,
    kafka_errors.RequestTimedOutError,
    kafka_errors.KafkaTimeoutError,
    kafka_errors.Cancelled,
)


class KafkaConnection:
    """Connections to the brokers of one cluster, used by any number of threads."""

    def __init__(self, address: StoreUrl, *, settings: StoreSettings) -> None:
        quieten("kafka")
        self.url = str(address)
        self._servers = address.servers
        self._timeout_s = settings.timeout_s
        self._arguments = {
            **kafka_arguments(settings.client_properties),
            "bootstrap_servers": list(address.servers),
            "request_timeout_ms": max(1, int(settings.timeout_s * 1000)),
            "reconnect_backoff_max_ms": 1000,
            "receive_message_max_bytes": LARGEST_RESPONSE,
        }
        self._lock = threading.Lock()
        self._manager: Any = None
        self._net: Any = None
        self._closed = False

    def send(self, request: Any, *, node_id: int | None = None) -> Any:
        """The response to a request, from any broker or from the one named.

        Raises `StoreUnreachableError` where no broker answers in time, `StoreRefusedError` where the credentials are
        refused or the brokers don't know the request.
        """
        answers: list[Any] = []
        causes: list[Exception] = []

        def answered() -> bool:
            try:
                manager = self._connected()
                answers.append(manager.run(manager.send, request, node_id))
            except _INTERRUPTED as error:
                causes.append(error)
            except kafka_errors.KafkaError as error:
                raise self._translated(error) from error
            except RuntimeError as error:  # what kafka-python's loop says to a request that comes after its end
                if not self._closed:
                    raise
                raise self._was_closed() from error
            return bool(answers)

        if not Polling(RETRY_INTERVAL_S).until(answered, timeout_s=self._timeout_s):
            raise self._unreachable(node_id, causes[-1] if causes else None) from (causes[-1] if causes else None)
        return answers[0]

    def node_ids(self) -> tuple[int, ...]:
        """The ids of all brokers that are up, sorted; raises what `send` raises."""
        response = self.send(MetadataRequest(topics=[], allow_auto_topic_creation=False))
        return tuple(sorted(broker.node_id for broker in response.brokers))

    def error(self, code: int, message: str | None, *, missing_acl: str) -> StoreError | InvalidQuotaError:
        """The error of ours for an error code in a response; `missing_acl` is the operation that the request needs."""
        kind = kafka_errors.for_code(code)
        name = _UNKNOWN if code == -1 else getattr(kind, "message", None) or f"error {code}"
        resource = _ACL_RESOURCES.get(kind)
        if resource is not None:
            option = f"--{resource}" if resource == "cluster" else f"--{resource} NAME"
            return StoreRefusedError(
                f"not authorized at {self.url}: {missing_acl} on the {resource} is missing",
                hint=f"kafka-acls --add {option} --operation {missing_acl} --allow-principal User:NAME",
            )
        if kind in (kafka_errors.InvalidRequestError, kafka_errors.UnsupportedVersionError):
            return InvalidQuotaError(message or f"{self.url} refused the request ({name})", code=name)
        return StoreError(f"{self.url} answered {name}" + (f": {message}" if message else ""))

    def close(self) -> None:
        """Nothing; all connections are closed, and no other will be opened."""
        with self._lock:
            self._closed = True
            manager, net = self._manager, self._net
            self._manager = self._net = None
        if manager is not None:
            _close(manager, net)

    def _connected(self) -> Any:
        """The connection manager, connected now where it was not yet."""
        with self._lock:
            if self._closed:
                raise self._was_closed()
            if self._manager is None:
                tls = self._arguments.get("ssl_context")
                check_reachable(self._servers, url=self.url, timeout_s=self._timeout_s, tls=tls)
                net = NetworkSelector(**self._arguments)
                manager = KafkaConnectionManager(net, **self._arguments)
                net.start()
                try:
                    manager.run(_first_contact, manager, self._arguments["request_timeout_ms"])
                    manager.bootstrap(self._arguments["request_timeout_ms"])
                except BaseException:
                    _close(manager, net)
                    raise
                self._manager, self._net = manager, net
            return self._manager

    def _was_closed(self) -> StoreError:
        return StoreError(f"the store was closed: {self.url}")

    def _unreachable(self, node_id: int | None, cause: Exception | None) -> StoreUnreachableError:
        who = self.url if node_id is None else f"broker {node_id} of {self.url}"
        reason = " ".join(str(argument) for argument in cause.args) if cause is not None else ""
        return StoreUnreachableError(
            f"{who} gave no answer in {self._timeout_s:g} s" + (f" ({' '.join(reason.split())})" if reason else ""),
            hint="check that the port speaks Kafka, and that security.protocol fits: TLS and plaintext do not mix",
        )

    def _translated(self, error: Exception) -> StoreError:
        """The error of ours for one that kafka-python raised."""
        if isinstance(error, kafka_errors.IncompatibleBrokerVersion):
            return StoreRefusedError(
                f"the brokers at {self.url} have no quota requests: they are older than Kafka 2.6",
                hint="set quotas in their ZooKeeper instead: --zookeeper HOST:2181/CHROOT",
            )
        if isinstance(error, kafka_errors.SaslAuthenticationFailedError | kafka_errors.IllegalSaslStateError):
            return StoreRefusedError(f"{self.url} refused the credentials", hint=_AUTH_HINT)
        if isinstance(error, kafka_errors.UnsupportedSaslMechanismError):
            return StoreRefusedError(f"{self.url} does not take this sasl.mechanism", hint=_AUTH_HINT)
        return StoreError(f"{self.url} failed: {' '.join(str(error).split())}", hint="check that the port speaks Kafka")


async def _first_contact(manager: Any, timeout_ms: int) -> None:
    """Nothing, once one server of the address has let us in.

    kafka-python's own bootstrap tries again whatever the failure was and tells it to its log alone; this raises the
    failure of the last server where none lets us in.
    """
    failure: Exception | None = None
    for server in manager.cluster.bootstrap_brokers():
        connection = manager.get_connection(server.node_id, timeout_ms=timeout_ms, refresh_metadata_on_err=False)
        try:
            await connection
        except kafka_errors.KafkaError as error:
            failure = error
        else:
            failure = None
            break
        finally:
            manager.close(server.node_id)
    if failure is not None:
        raise failure


def _close(manager: Any, net: Any) -> None:
    """Nothing; the manager's connections and its thread are gone."""
    manager.run(manager.close)
    net.stop()
    net.close()
