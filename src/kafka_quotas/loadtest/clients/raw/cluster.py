"""How raw clients reach a cluster: address, TLS and login, from the librdkafka properties of a plan.

Contract: a property means the same to every client of a run. Raw clients ignore a property that only tunes
librdkafka, but for `request.timeout.ms`, and refuse by name a security setting that they can't honour.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeAlias

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.formats.documents import read_text
from kafka_quotas.loadtest.clients.cluster_check import ClusterUnreachableError, LoadRefusedError
from kafka_quotas.loadtest.clients.raw.connection import ANSWER_S, opened
from kafka_quotas.loadtest.plan.plan import ClientLoad, LoadPlan
from kafka_quotas.stores.address import network_reason
from kafka_quotas.stores.kafka.broker_client import KafkaAccess, kafka_access
from kafka_quotas.stores.security.sasl import SaslMechanism, plain_login, scram_login
from kafka_quotas.wire.client.metadata import Metadata, MetadataRequest
from kafka_quotas.wire.protocol.error_code import ErrorCode, error_name

_PLAIN: Final = "PLAIN"
_SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_PEM_FILES: Final = {
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.keystore.location": "ssl.keystore.location",
    "ssl.keystore.password": "ssl.keystore.password",
    "ssl.key.password": "ssl.key.password",
    "ssl.key.pem": "ssl.keystore.key",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
}
_UNCHECKED_HOST: Final = "none"


def client_access(plan: LoadPlan, entity: ClientLoad) -> KafkaAccess:
    """Return TLS and login for a client of the plan."""
    properties = plan.properties_of(entity)
    protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
    if properties.get("enable.ssl.certificate.verification", "true").strip().lower() == "false":
        raise UsageError(
            "raw clients always verify the broker's certificate", hint="name its authority with -X ssl.ca.location=FILE"
        )
    names = {ours: properties[theirs] for theirs, ours in _PEM_FILES.items() if properties.get(theirs)}
    names |= _own_certificate(properties)
    if properties.get("ssl.endpoint.identification.algorithm", "https").strip().lower() == _UNCHECKED_HOST:
        names["ssl.endpoint.identification.algorithm"] = ""
    is_login = protocol.startswith("SASL_")
    access = kafka_access({**names, "security.protocol": protocol.removeprefix("SASL_") if is_login else protocol})
    return replace(access, login=_login(properties)) if is_login else access


def _own_certificate(properties: Mapping[str, str]) -> dict[str, str]:
    files = {"ssl.key.location": "ssl.keystore.key", "ssl.certificate.location": "ssl.keystore.certificate.chain"}
    found = {}
    for theirs, ours in files.items():
        path = properties.get(theirs)
        if path:
            try:
                found[ours] = read_text(Path(path), "ascii")
            except (OSError, UnicodeDecodeError) as error:
                raise UsageError(f"{theirs}: cannot read {path}") from error
    return found


def _login(properties: Mapping[str, str]) -> SaslMechanism:
    mechanism = (properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or "").strip().upper()
    user, password = properties.get("sasl.username"), properties.get("sasl.password")
    if mechanism != _PLAIN and mechanism not in _SCRAM:
        raise UsageError(
            f"raw clients don't log in by sasl.mechanism {mechanism or '(missing)'}",
            hint=f"one of {', '.join((_PLAIN, *_SCRAM))}, or --client librdkafka",
        )
    if user is None or password is None:
        raise UsageError("a login needs a user and a password", hint="-X sasl.username=.. -X sasl.password=..")
    return plain_login(user, password) if mechanism == _PLAIN else scram_login(mechanism, user, password)


Address: TypeAlias = tuple[str, int]
_VERSION: Final = 8
LEADER_MOVED: Final = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)
"""What a broker answers that leads the partition no longer."""
_PATIENCE: Final = 12  # attempts: a new topic, or one without a leader, needs up to 3 s to get its leaders
_LOOK_S: Final = 0.25


class Leaders:
    """The partition leaders of a cluster, found through its bootstrap addresses in librdkafka's notation.

    A server that does not answer within `answer_s` seconds counts as unreachable.
    """

    def __init__(self, bootstrap: str, *, answer_s: float = ANSWER_S) -> None:
        self._bootstrap = bootstrap
        self._answer_s = answer_s
        self.servers = tuple(_address(server) for server in bootstrap.split(","))
        self._found: dict[str, Mapping[int, Address]] = {}
        self._asking = asyncio.Lock()
        self._numbers: dict[Address, int] = {}

    async def of(self, topic: str, *, access: KafkaAccess, client_id: str | None) -> Mapping[int, Address]:
        """Return the address of the leader of every partition, from the cache or from a broker.

        Raises:
            LoadRefusedError: If the topic does not exist or the client may not describe it.
            OSError: If no broker answers, or partitions have no leader.
        """
        async with self._asking:
            found = self._found.get(topic)
            if found is None:
                found = self._found[topic] = await self._settled(topic, access, client_id)
            return found

    def forget(self, topic: str) -> None:
        """Drop the topic's leaders from the cache."""
        self._found.pop(topic, None)

    def number_of(self, address: Address) -> int:
        """Return a small number that identifies a broker in this run."""
        return self._numbers.setdefault(address, len(self._numbers))

    async def controller(self, *, access: KafkaAccess, client_id: str | None) -> Address:
        """Return the address of the broker that takes changes of topics."""
        metadata = await self._asked(None, access, client_id)
        addresses = {broker.node_id: (broker.host, broker.port) for broker in metadata.brokers}
        return addresses.get(metadata.controller_id, self.servers[0])

    async def _settled(self, topic: str, access: KafkaAccess, client_id: str | None) -> Mapping[int, Address]:
        code = 0
        for _ in range(_PATIENCE):
            metadata = await self._asked(topic, access, client_id)
            addresses = {broker.node_id: (broker.host, broker.port) for broker in metadata.brokers}
            found = metadata.topics[0]
            code = found.error_code
            leaders = {each.number: addresses.get(each.leader_id) for each in found.partitions}
            known = {number: address for number, address in leaders.items() if address is not None}
            if not code and known and len(known) == len(leaders):
                return known
            # Only a missing topic or leader can pass by itself.
            if code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                break
            await asyncio.sleep(_LOOK_S)
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise LoadRefusedError(f"topic {topic} does not exist at {self._bootstrap}", hint="was it deleted?")
        if code:
            raise LoadRefusedError(f"topic {topic} can't be used at {self._bootstrap}: {error_name(code)}")
        raise ConnectionError(f"topic {topic} has partitions without a leader")

    async def _asked(self, topic: str | None, access: KafkaAccess, client_id: str | None) -> Metadata:
        trouble: OSError | None = None
        for server in self.servers:
            try:
                connection = await opened(server, access=access, client_id=client_id)
                try:
                    request = MetadataRequest(topics=() if topic is None else (topic,))
                    return await connection.ask(request, _VERSION, client_id=client_id, within_s=self._answer_s)
                finally:
                    connection.close()
            except OSError as error:
                trouble = error
        assert trouble is not None  # there is one server at least
        raise trouble


def unreachable(bootstrap: str, error: OSError) -> ClusterUnreachableError:
    """Return the error of a run whose target does not answer."""
    return ClusterUnreachableError(
        f"no broker answers at {bootstrap}: {network_reason(error)}", hint="check --bootstrap-server HOST:PORT"
    )


def _address(server: str) -> Address:
    """Split `host:port` or `PROTOCOL://host:port`, with librdkafka's default port where none is given."""
    address = server.strip().rpartition("://")[2]
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        return address.strip("[]"), 9092
    return host.strip("[]"), int(port)
