"""A client of a Kafka cluster, and what it asks brokers about themselves: settings, leaders, throttles and age.

Contract: it connects at first use, and its errors are in our words. A request is repeated until the time is up if the
connection fails or a broker asks for another attempt. All that is sent here (setting a key to a value, reading) is
idempotent. The first contact is not repeated if nothing listens at any address. All silent brokers of one question to
everybody cost a single wait.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from kafka_quotas.core.errors import InvalidQuotaError, StoreError, StoreRefusedError, StoreUnreachableError
from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.core.model.quota_key import LONG_MAX
from kafka_quotas.stores.address import ServerAddress, StoreSettings, StoreUrl, UnresponsiveBrokerError, timeouts
from kafka_quotas.stores.kafka.broker_client import (
    BrokerClient,
    LostAnswerError,
    NoConnectionError,
    ShutOutError,
    kafka_access,
)
from kafka_quotas.stores.store import BROKER_THROTTLES, TOPIC_THROTTLES, ClusterInfo, Polling, ReplicationThrottle
from kafka_quotas.wire.client.admin import (
    BROKER,
    TOPIC,
    DescribeConfigsRequest,
    ListReassignmentsRequest,
    Metadata,
    MetadataRequest,
)
from kafka_quotas.wire.client.request import ClientRequest, VersionRequest
from kafka_quotas.wire.protocol.api_table import error_name

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class FanOut(Generic[Answer]):
    """The answers of brokers, and the failures of the others."""

    answers: Mapping[int, Answer]
    failures: Mapping[int, StoreError]

    @property
    def missing(self) -> str | None:
        """The reasons of all brokers without an answer, on one line, None where all answered."""
        return "; ".join(error.message for error in self.failures.values()) or None

    def raise_refusal(self) -> None:
        """Raise the first `StoreRefusedError` where no broker answered, as it does not concern one alone."""
        refusals = [error for error in self.failures.values() if isinstance(error, StoreRefusedError)]
        if refusals and not self.answers:
            raise refusals[0]


def ask_each(node_ids: Sequence[int], question: Callable[[int], Answer]) -> FanOut[Answer]:
    """Ask every broker at the same time, each in a thread of its own, and wait for the last.

    A `StoreError` of the question counts as that broker's failure, and any other exception ends the whole call.
    """
    answers: dict[int, Answer] = {}
    failures: dict[int, StoreError] = {}
    faults: list[Exception] = []

    def ask(node_id: int) -> None:
        try:
            answers[node_id] = question(node_id)
        except StoreError as error:
            failures[node_id] = error
        except Exception as error:  # noqa: BLE001 - it is raised again in the thread that asked
            faults.append(error)

    # The first broker is asked in this thread, so a cluster of one takes no other.
    threads = [threading.Thread(target=ask, args=(node_id,), daemon=True) for node_id in node_ids[1:]]
    for thread in threads:
        thread.start()
    for node_id in node_ids[:1]:
        ask(node_id)
    for thread in threads:
        thread.join()
    if faults:
        raise faults[0]
    return FanOut(answers=dict(sorted(answers.items())), failures=dict(sorted(failures.items())))


DESCRIBE_ACL: Final = "DescribeConfigs"
ALTER_ACL: Final = "AlterConfigs"
RETRY_INTERVAL_S: Final = 0.25
_CONTACT_S: Final = 5.0
"""Longest wait for one broker to accept us before another attempt, and for one of many to begin its answer."""
_NOTHING_LISTENS_S: Final = 10.0
"""Seconds for which all known brokers may refuse connections until none is expected back soon."""
_SHUT_OUTS: Final = 3
"""Number of fresh connections in a row that a broker may end until the client gives up."""
_ACL_RESOURCES: Final = {"CLUSTER_AUTHORIZATION_FAILED": "cluster", "TOPIC_AUTHORIZATION_FAILED": "topic"}
"""The resource on which an ACL is missing, by Kafka's name of the error."""
_REFUSED_TWICE: Final = 2
"""Number of connections that one of many brokers may refuse until the client does without it."""
CALLBACK_CLASS: Final = "client.quota.callback.class"
"""The property with which a broker replaces Kafka's own quota resolution."""
_BATCH: Final = 500
_DEFAULTS: Final = StoreSettings()
Properties = Mapping[str, str]
"""Settings by Kafka's property name, without those that are not set."""


class ClusterClient:
    """Connections to the brokers of one cluster, for use by any number of threads."""

    def __init__(self, address: StoreUrl, *, settings: StoreSettings = _DEFAULTS) -> None:
        self.url = str(address)
        self._timeouts = timeouts(settings)
        self._unresponsive = settings.unresponsive
        self._access = kafka_access(settings.client_properties)
        self._lock = threading.Lock()
        self._servers = [ServerAddress.parse(server) for server in address.servers]
        self._peers: dict[ServerAddress, BrokerClient] = {}
        self._nodes: dict[int, ServerAddress] = {}
        self._contacted = False
        self._closed = False

    def send(self, request: ClientRequest[Answer], *, node_id: int | None = None) -> Answer:
        """Return the answer of one broker to a request, of any broker without `node_id`.

        Raises:
            LostAnswerError: The request was sent, and no broker answered in time.
            StoreUnreachableError: No broker could be reached.
            StoreRefusedError: The credentials are refused, or the brokers don't know the request.
        """
        begin_s = time.monotonic()
        deadline_s = begin_s + self._timeouts.call_s
        answers: list[Answer] = []
        failures: list[OSError] = []

        def answered() -> bool:
            self._check_open()
            try:
                if node_id is None:
                    answers.append(self._asked_any(request, deadline_s))
                else:
                    answers.append(self._asked_node(request, node_id, deadline_s))
            except (OSError, StoreError) as error:
                self._check_open()
                if isinstance(error, StoreError):
                    raise
                failures.append(error)
                self._give_up_early(failures, since_s=time.monotonic() - begin_s)
                return False
            return not request.asks_to_try_again(answers[-1])

        if not Polling(RETRY_INTERVAL_S).until(answered, timeout_s=self._timeouts.call_s) and not answers:
            raise self._unreachable(node_id, failures) from failures[-1]
        return answers[-1]

    def send_to(self, request: ClientRequest[Answer], *, node_id: int) -> Answer:
        """Return the answer of one broker of `node_ids` to a read, with less patience than `send`."""
        server = self._nodes.get(node_id)
        if server is None:
            raise UnresponsiveBrokerError(f"broker {node_id} is not listed by {self.url} any more")
        reason = self._unresponsive.reason(server)
        if reason is None:
            try:
                return self._asked_patiently(request, server)
            except OSError as error:
                self._check_open()
                reason = str(error)
                self._unresponsive.add(server, reason)
        raise UnresponsiveBrokerError(f"broker {node_id} ({server}) does not answer ({reason})")

    def node_ids(self) -> tuple[int, ...]:
        """Return the ids of all brokers that are up, sorted, with the errors of `send`."""
        self._remember_nodes(self.send(MetadataRequest()))
        return tuple(sorted(self._nodes))

    def controller_id(self) -> int:
        """Return the id of the broker that takes changes of topics, to which others forward them under KRaft."""
        metadata = self.send(MetadataRequest())
        self._remember_nodes(metadata)
        return metadata.controller_id

    def broker_settings(self, names: Sequence[str]) -> FanOut[Properties]:
        """Return the named settings of every broker that answers, each asked for its own."""
        found = ask_each(self.node_ids(), lambda node_id: self.settings_of(node_id, names))
        found.raise_refusal()
        return found

    def settings_of(self, node_id: int, names: Sequence[str]) -> Properties:
        """Return the named settings of one broker, which answers for itself."""
        found = self.configs(BROKER, [str(node_id)], names, node_id=node_id)
        if str(node_id) not in found:
            raise StoreError(f"broker {node_id} answered for {', '.join(found) or 'none'}")
        return found[str(node_id)]

    def configs(
        self, kind: int, places: Sequence[str], names: Sequence[str], *, node_id: int | None = None
    ) -> dict[str, Properties]:
        """Return the named settings that are set, by broker or topic, or refuse for want of an ACL."""
        found: dict[str, Properties] = {}
        for start in range(0, len(places), _BATCH):
            asked = tuple(places[start : start + _BATCH])
            request = DescribeConfigsRequest(resource_type=kind, resource_names=asked, config_names=tuple(names))
            for result in self.send(request) if node_id is None else self.send_to(request, node_id=node_id):
                if result.error_code:
                    raise self.error(result.error_code, result.error_message, missing_acl=DESCRIBE_ACL)
                found[result.resource_name] = {name: value for name, value in result.configs.items() if value}
        return found

    def leaders(self, topic: str) -> Mapping[int, int]:
        """Return the id of the leader by partition of a topic, without partitions that have none."""
        (found,) = self.send(MetadataRequest(topics=(topic,))).topics
        if found.error_code:
            raise self.error(found.error_code, f"topic {topic}", missing_acl="Describe")
        leaders = {part.number: part.leader_id for part in found.partitions if part.leader_id >= 0}
        return dict(sorted(leaders.items()))

    def error(self, code: int, message: str | None, *, missing_acl: str) -> StoreError | InvalidQuotaError:
        """Return our error for an error code in a response, which may mean that an ACL is missing."""
        name = error_name(code)
        resource = _ACL_RESOURCES.get(name)
        if resource is not None:
            option = f"--{resource}" if resource == "cluster" else f"--{resource} NAME"
            return StoreRefusedError(
                f"not authorized at {self.url}: {missing_acl} on the {resource} is missing",
                hint=f"kafka-acls --add {option} --operation {missing_acl} --allow-principal User:NAME",
            )
        if name in ("INVALID_REQUEST", "UNSUPPORTED_VERSION"):
            return InvalidQuotaError(message or f"{self.url} refused the request ({name})", code=name)
        return StoreError(f"{self.url} answered {name}" + (f": {message}" if message else ""))

    def close(self) -> None:
        """Close all connections, and refuse to open others."""
        self._closed = True
        with self._lock:
            peers = list(self._peers.values())
        for peer in peers:
            peer.close()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError(f"the store was closed: {self.url}")

    def _asked_any(self, request: ClientRequest[Answer], deadline_s: float) -> Answer:
        known = dict.fromkeys((*self._servers, *self._nodes.values()))
        servers = sorted(known, key=lambda server: self._unresponsive.reason(server) is not None)
        failures: list[OSError] = []
        for index, server in enumerate(servers):
            now_s = time.monotonic()
            # Each remaining server gets an equal share of the time, so that a silent one leaves some for the others.
            share_s = (deadline_s - now_s) / (len(servers) - index)
            try:
                answer = self._asked(request, server, now_s + share_s)
            except OSError as error:
                failures.append(error)
                if isinstance(error, NoConnectionError | TimeoutError):
                    self._unresponsive.add(server, str(error))
            else:
                self._servers = [server, *(other for other in self._servers if other != server)]
                return answer
        # Before the first contact a wrong address is more likely than brokers that restart.
        if not self._contacted and all(isinstance(error, NoConnectionError) for error in failures):
            reasons = "; ".join(f"{server}: {error}" for server, error in zip(servers, failures, strict=True))
            problem = f"{self.url} can't be reached ({reasons})"
            raise StoreUnreachableError(problem, hint="check the address, and that the server runs")
        raise next((error for error in failures if not isinstance(error, NoConnectionError)), failures[-1])

    def _asked_node(self, request: ClientRequest[Answer], node_id: int, deadline_s: float) -> Answer:
        if node_id not in self._nodes:
            self._remember_nodes(self._asked_any(MetadataRequest(), deadline_s))
        server = self._nodes.get(node_id)
        if server is None:
            raise ConnectionError("the cluster does not list it")
        try:
            return self._asked(request, server, deadline_s)
        except OSError:
            self._nodes.pop(node_id, None)
            raise

    def _remember_nodes(self, metadata: Metadata) -> None:
        self._nodes = {broker.node_id: ServerAddress(broker.host, broker.port) for broker in metadata.brokers}

    def _asked_patiently(self, request: ClientRequest[Answer], server: ServerAddress) -> Answer:
        """Return the answer of one of many brokers, after lost connections and one refused connection."""
        patience_s = self._timeouts.request_s or min(_CONTACT_S, self._timeouts.call_s)
        begin_deadline_s = time.monotonic() + patience_s
        answers: list[Answer] = []
        failures: list[OSError] = []

        def settled() -> bool:
            self._check_open()
            try:
                answers.append(self._asked(request, server, begin_deadline_s, begins=True))
            except OSError as error:
                failures.append(error)
                return (
                    sum(isinstance(each, NoConnectionError) for each in failures) >= _REFUSED_TWICE
                    or sum(isinstance(each, ShutOutError) for each in failures) >= _SHUT_OUTS
                )
            return not request.asks_to_try_again(answers[-1])

        Polling(RETRY_INTERVAL_S).until(settled, timeout_s=patience_s)
        if not answers:
            raise failures[-1]
        return answers[-1]

    def _asked(
        self, request: ClientRequest[Answer], server: ServerAddress, deadline_s: float, *, begins: bool = False
    ) -> Answer:
        with self._lock:
            peer = self._peers.get(server)
            if peer is None:
                self._check_open()
                peer = self._peers[server] = BrokerClient(server, access=self._access, url=self.url)
        now_s = time.monotonic()
        request_s = self._timeouts.request_s or self._timeouts.call_s
        answer = peer.ask(
            request,
            contact_deadline_s=min(deadline_s, now_s + min(_CONTACT_S, request_s)),
            deadline_s=now_s + self._timeouts.call_s if begins else min(deadline_s, now_s + request_s),
            begin_deadline_s=deadline_s if begins else None,
        )
        self._contacted = True
        self._unresponsive.discard(server)
        return answer

    def _give_up_early(self, failures: list[OSError], *, since_s: float) -> None:
        """Refuse to continue after too many ended connections, or too long without any connection."""
        last = failures[-1]
        if isinstance(last, NoConnectionError) and since_s > _NOTHING_LISTENS_S:
            raise _unanswered(failures)(
                f"{self.url} can't be reached any more ({last})", hint="run it again once the brokers are back"
            ) from last
        if isinstance(last, ShutOutError) and sum(isinstance(each, ShutOutError) for each in failures) >= _SHUT_OUTS:
            raise _unanswered(failures)(last.message, hint=last.hint) from last

    def _unreachable(self, node_id: int | None, failures: Sequence[OSError]) -> StoreUnreachableError:
        who = self.url if node_id is None else f"broker {node_id} of {self.url}"
        return _unanswered(failures)(
            f"{who} gave no answer in {self._timeouts.call_s:g} s ({failures[-1]})",
            hint="check that the port speaks Kafka, and that security.protocol fits: TLS and plaintext do not mix",
        )


def _unanswered(failures: Sequence[OSError]) -> type[StoreUnreachableError]:
    """Return the kind of error for failed attempts: a broker may have carried out what was sent."""
    never_sent = all(isinstance(error, NoConnectionError) for error in failures)
    return StoreUnreachableError if never_sent else LostAnswerError


_CREATE_TOPICS_OF_2_7: Final = 6
_THREADS: Final = ("num.io.threads", "num.network.threads")
_NOT_LIMITED: Final = str(LONG_MAX)
_TIMEOUT_MS: Final = 10_000


def cluster_info(connection: ClusterClient) -> ClusterInfo:
    """Return the facts that the brokers report, with what they refuse in `unknown`."""
    nodes = connection.node_ids()
    unknown: list[str] = []
    old = ask_each(nodes, lambda node: not _knows_2_7(connection, node))
    old.raise_refusal()
    names = (CALLBACK_CLASS, *_THREADS, *BROKER_THROTTLES)
    settings = ask_each(tuple(old.answers), lambda node: connection.settings_of(node, names))
    if settings.missing is not None:
        which = "some of the brokers" if settings.answers else "the brokers"
        unknown.append(f"the settings of {which} were not looked at: {settings.missing}")
    brokers = settings.answers
    of_brokers = [
        (f"broker {node}", name, found[name])
        for node, found in brokers.items()
        for name in BROKER_THROTTLES
        if found.get(name, _NOT_LIMITED) != _NOT_LIMITED
    ]
    return ClusterInfo(
        callbacks={str(node): found[CALLBACK_CLASS] for node, found in brokers.items() if CALLBACK_CLASS in found},
        threads={str(node): sum(int(found.get(name, "0")) for name in _THREADS) for node, found in brokers.items()},
        replication_throttles=(*of_brokers, *_of_topics(connection, unknown)),
        reassigning=_reassigning(connection, unknown),
        too_old=_old(old),
        unanswered={str(node): error.message for node, error in old.failures.items()},
        unknown=tuple(unknown),
    )


def old_brokers(connection: ClusterClient) -> tuple[str, ...]:
    """Return the ids of the answering brokers older than 2.7."""
    return _old(ask_each(connection.node_ids(), lambda node: not _knows_2_7(connection, node)))


def _old(found: FanOut[bool]) -> tuple[str, ...]:
    return tuple(str(node) for node, is_old in found.answers.items() if is_old)


def _of_topics(connection: ClusterClient, unknown: list[str]) -> list[ReplicationThrottle]:
    response = connection.send(MetadataRequest(topics=None))
    topics = sorted(topic.name for topic in response.topics if not topic.error_code)
    try:
        settings = connection.configs(TOPIC, topics, TOPIC_THROTTLES)
    except StoreError as error:
        unknown.append(f"the settings of the topics were not looked at: {error.message}")
        return []
    return [
        (f"topic {topic}", name, settings[topic][name])
        for topic in topics
        for name in TOPIC_THROTTLES
        if settings.get(topic, {}).get(name)
    ]


def _reassigning(connection: ClusterClient, unknown: list[str]) -> bool | None:
    try:
        response = connection.send(ListReassignmentsRequest(timeout_ms=_TIMEOUT_MS))
        if response.error_code:
            raise connection.error(response.error_code, response.error_message, missing_acl="Describe")
    except StoreError as error:
        unknown.append(f"whether partitions are being moved is not known: {error.message}")
        return None
    return bool(response.topics)


def _knows_2_7(connection: ClusterClient, node_id: int) -> bool:
    newest = connection.send_to(VersionRequest(), node_id=node_id).ranges.get(ApiKey.CREATE_TOPICS)
    return newest is not None and newest.highest >= _CREATE_TOPICS_OF_2_7
