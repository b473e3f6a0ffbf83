"""The Kafka store against real brokers: logins, missing ACLs, large changes, visibility, and brokers that won't do."""

import socket
import socketserver
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from kafka import KafkaAdminClient
from kafka.admin import ACL, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType
from tests.support.brokers.appended_records import make_topic
from tests.support.brokers.servers import Kafka
from tests.support.processes.frozen import frozen

from kafka_quotas.core.errors import InvalidQuotaError, StoreError, StoreRefusedError, StoreUnreachableError
from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.core.model.entity import EVERYTHING, Entity, FilterComponent, Match, QuotaFilter, entity_filter
from kafka_quotas.stores import open_store
from kafka_quotas.stores.address import StoreSettings, parse_store_url
from kafka_quotas.stores.kafka.cluster_client import CALLBACK_CLASS, ClusterClient
from kafka_quotas.stores.kafka.store import LARGEST_REQUEST
from kafka_quotas.stores.store import Alteration, Polling, QuotaEntry, Store
from kafka_quotas.wire.protocol.api_table import ErrorCode

API_VERSIONS, METADATA = ApiKey.API_VERSIONS, ApiKey.METADATA
_UNSUPPORTED_VERSION = ErrorCode.UNSUPPORTED_VERSION
_KNOWN = {API_VERSIONS: (0, 0), METADATA: (0, 1), ApiKey.PRODUCE: (0, 2), ApiKey.FETCH: (0, 2)}


@contextmanager
def old_broker() -> Iterator[str]:
    """The address (host:port) of the broker.

    Gone at the end.
    """
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Connection) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


class _Connection(socketserver.StreamRequestHandler):
    request: socket.socket

    def handle(self) -> None:
        while len(size := self.rfile.read(4)) == 4:
            frame = self.rfile.read(int.from_bytes(size))
            api_key, version, correlation_id = struct.unpack_from(">hhi", frame)
            body = self._api_versions(version) if api_key == API_VERSIONS else self._metadata()
            self.wfile.write(struct.pack(">ii", 4 + len(body), correlation_id) + body)

    def _api_versions(self, version: int) -> bytes:
        """Version 0 of the response, with the error of a version that is too new, as brokers answer it."""
        entries = b"".join(struct.pack(">hhh", key, low, high) for key, (low, high) in _KNOWN.items())
        return struct.pack(">hi", _UNSUPPORTED_VERSION if version else 0, len(_KNOWN)) + entries

    def _metadata(self) -> bytes:
        """Version 1: this broker, which is the controller, and no topics."""
        host, port = self.server.server_address[:2]
        name = str(host).encode()
        broker = struct.pack(">ih", 1, len(name)) + name + struct.pack(">ih", int(port), -1)
        return struct.pack(">i", 1) + broker + struct.pack(">ii", 1, 0)


RATE = "producer_byte_rate"


@contextmanager
def opened(address: str, **settings: object) -> Iterator[Store]:
    with closing(open_store(f"kafka://{address}", settings=StoreSettings(**settings))) as store:  # type: ignore[arg-type]
        yield store


def _set(store: Store, entity: Entity, value: float | None) -> Exception | None:
    (result,) = store.alter([Alteration(entity=entity, changes={RATE: value})])
    return result.error


class TestLogin:
    @pytest.mark.parametrize("tls", [False, True])
    @pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
    def test_by_sasl(self, kafka4: Kafka, mechanism: str, unique_name: str, *, tls: bool) -> None:
        properties = kafka4.client_properties("admin", mechanism=mechanism, tls=tls)
        entity = Entity.of(user=unique_name)
        with opened(kafka4.sasl_tls_bootstrap if tls else kafka4.sasl_bootstrap, client_properties=properties) as store:
            assert _set(store, entity, 5.0) is None
            assert store.describe(entity_filter(entity)) == [QuotaEntry(entity=entity, quotas={RATE: 5.0})]
            assert _set(store, entity, None) is None

    def test_by_tls_with_a_certificate(self, kafka4: Kafka) -> None:
        properties = {
            "security.protocol": "SSL",
            "ssl.truststore.location": str(kafka4.certificates / "authority.pem"),
            "ssl.keystore.location": str(kafka4.certificates / "client.pem"),
        }
        with opened(kafka4.tls_bootstrap, client_properties=properties) as store:
            assert isinstance(store.describe(EVERYTHING), list)

    @pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
    def test_a_wrong_password_is_told_as_such(self, kafka4: Kafka, mechanism: str) -> None:
        properties = kafka4.client_properties("alice", mechanism=mechanism)
        properties["sasl.jaas.config"] = properties["sasl.jaas.config"].replace("alice-secret", "wrong")
        with (
            opened(kafka4.sasl_bootstrap, client_properties=properties, timeout_s=240) as store,
            pytest.raises(StoreRefusedError, match="refused the credentials") as caught,
        ):
            store.describe(EVERYTHING)
        assert "sasl" in (caught.value.hint or "")

    @pytest.mark.parametrize(
        ("port", "protocol", "problem", "hint"),
        [
            ("tls_bootstrap", "PLAINTEXT", "speaks TLS", "set security.protocol to SSL"),
            ("sasl_tls_bootstrap", "SASL_PLAINTEXT", "speaks TLS", "set security.protocol to SSL"),
            ("bootstrap", "SSL", "ended the TLS handshake", "speaks plaintext"),
            ("sasl_bootstrap", "SASL_SSL", "ended the TLS handshake", "speaks plaintext"),
            ("sasl_bootstrap", "PLAINTEXT", "closed the connection at the first request", "wants a login"),
            ("sasl_tls_bootstrap", "SSL", "closed the connection at the first request", "wants a login"),
            ("bootstrap", "SASL_PLAINTEXT", "takes no logins at this port", "security.protocol"),
        ],
    )
    def test_the_wrong_security_protocol_is_told_long_before_the_time_is_up(
        self, kafka4: Kafka, port: str, protocol: str, problem: str, hint: str
    ) -> None:
        properties = {**kafka4.client_properties("admin", tls=True), "security.protocol": protocol}
        begin_s = time.monotonic()
        with (
            opened(getattr(kafka4, port), client_properties=properties, timeout_s=2400) as store,
            pytest.raises(StoreError, match=problem) as caught,
        ):
            store.describe(EVERYTHING)
        assert time.monotonic() - begin_s < 100
        assert hint in (caught.value.hint or "")

    def test_an_authority_that_is_not_trusted_is_told_as_such(self, kafka4: Kafka) -> None:
        stranger = {"ssl.truststore.location": str(kafka4.certificates / "stranger.pem")}
        with opened(kafka4.tls_bootstrap, client_properties={"security.protocol": "SSL", **stranger}) as store:
            with pytest.raises(StoreRefusedError, match="no TLS connection") as caught:
                store.describe(EVERYTHING)
            assert "\n" not in caught.value.message
            assert "trust store" in (caught.value.hint or "")


@pytest.fixture
def mallory(kafka4: Kafka) -> Iterator[Store]:
    """A store as a user who may do nothing with the cluster, while all others may."""
    cluster = ResourcePattern(ResourceType.CLUSTER, "kafka-cluster")

    def acl(principal: str, permission: ACLPermissionType) -> ACL:
        return ACL(
            principal=principal,
            host="*",
            operation=ACLOperation.ALL,
            permission_type=permission,
            resource_pattern=cluster,
        )

    acls = [acl("User:mallory", ACLPermissionType.DENY), acl("User:*", ACLPermissionType.ALLOW)]
    admin = KafkaAdminClient(bootstrap_servers=kafka4.bootstrap)
    admin.create_acls(acls)
    with opened(kafka4.sasl_bootstrap, client_properties=kafka4.client_properties("mallory")) as store:
        assert Polling(0.05).until(lambda: _denied(store), timeout_s=240)
        yield store
        admin.delete_acls(acls)
        admin.close()
        assert Polling(0.05).until(lambda: not _denied(store), timeout_s=240)


def _denied(store: Store) -> bool:
    try:
        store.describe(EVERYTHING)
    except StoreRefusedError:
        return True
    return False


class TestRefusals:
    def test_missing_acls_are_named(self, mallory: Store, unique_name: str) -> None:
        with pytest.raises(StoreRefusedError, match="DescribeConfigs on the cluster is missing") as caught:
            mallory.describe(EVERYTHING)
        assert "--operation DescribeConfigs" in (caught.value.hint or "")
        for validate_only in (True, False):
            alteration = Alteration(entity=Entity.of(user=unique_name), changes={RATE: 5.0})
            (result,) = mallory.alter([alteration], validate_only=validate_only)
            assert isinstance(result.error, StoreRefusedError)
            assert "AlterConfigs on the cluster is missing" in result.error.message

    @pytest.mark.parametrize("validate_only", [False, True])
    def test_the_brokers_own_verdict_is_passed_on(self, kafka4: Kafka, validate_only: bool) -> None:
        alteration = Alteration(entity=Entity.of(ip="no such host"), changes={"connection_creation_rate": 5.0})
        with opened(kafka4.bootstrap) as store:
            (result,) = store.alter([alteration], validate_only=validate_only)
        assert isinstance(result.error, InvalidQuotaError)
        assert result.error.code == "INVALID_REQUEST"
        assert result.error.message == "no such host is not a valid IP or resolvable host."

    def test_brokers_without_quota_requests_are_too_old(self) -> None:
        with old_broker() as address, opened(address, timeout_s=240) as store:
            with pytest.raises(StoreRefusedError, match=r"older than Kafka 2\.6") as caught:
                store.describe(EVERYTHING)
            assert "--zookeeper" in (caught.value.hint or "")
            with pytest.raises(StoreRefusedError, match=r"older than Kafka 2\.6"):
                _set(store, Entity.of(user="alice"), 5.0)

    def test_a_refused_connection_is_told_at_once(self) -> None:
        with opened("127.0.0.1:1") as store, pytest.raises(StoreUnreachableError, match="connection refused"):
            store.describe(EVERYTHING)

    def test_a_port_that_is_not_kafka_is_given_up(self, zookeeper_server: str) -> None:
        with (
            opened(zookeeper_server, timeout_s=2) as store,
            pytest.raises(StoreUnreachableError, match="closed the connection without an answer") as caught,
        ):
            store.describe(EVERYTHING)
        assert "or is it not Kafka's" in (caught.value.hint or "")


class TestLargeChanges:
    def test_more_than_a_controller_takes_at_once(self, kafka4: Kafka, unique_name: str) -> None:
        count = LARGEST_REQUEST // 2 + 500  # two keys each, so two requests
        entities = [Entity.of(user=unique_name, client_id=f"client {number}") for number in range(count)]
        with opened(kafka4.bootstrap) as store:
            for value in (5.0, None):
                changes = {RATE: value, "consumer_byte_rate": value}
                results = store.alter([Alteration(entity=entity, changes=changes) for entity in entities])
                assert [result.entity for result in results] == entities
                assert {result.error for result in results} == {None}
                found = {entry.entity for entry in store.describe(EVERYTHING)}
                assert found.issuperset(entities) if value else found.isdisjoint(entities)


class TestCluster:
    def test_a_change_is_visible_on_every_broker_at_once(self, kafka4_cluster: Kafka, unique_name: str) -> None:
        entity = Entity.of(user=unique_name)
        first, second = kafka4_cluster.bootstrap.split(",")
        with opened(first) as writer, opened(second) as reader:
            for number in range(1, 30):
                assert _set(writer, entity, float(number)) is None
                assert reader.describe(entity_filter(entity)) == [
                    QuotaEntry(entity=entity, quotas={RATE: float(number)})
                ]
            assert _set(writer, entity, None) is None
            assert reader.describe(entity_filter(entity)) == []

    def test_a_change_that_does_not_show_is_an_error_unless_not_waited_for(
        self, kafka4_cluster: Kafka, unique_name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import kafka_quotas.stores.kafka.store as visibility  # noqa: PLC0415

        monkeypatch.setattr(visibility, "described_entries", lambda response: [])
        entity = Entity.of(user=unique_name)
        with opened(kafka4_cluster.bootstrap, timeout_s=2) as store:
            error = _set(store, entity, 5.0)
            assert isinstance(error, StoreUnreachableError)
            assert "accepted, but" in error.message
            assert "--no-wait" in (error.hint or "")
        with opened(kafka4_cluster.bootstrap, wait=False) as store:
            assert _set(store, entity, None) is None

    def test_brokers_say_what_quotas_mean_there(self, kafka4_cluster: Kafka, unique_name: str) -> None:
        cluster = ClusterClient(parse_store_url(f"kafka://{kafka4_cluster.bootstrap}"))
        with closing(cluster):
            assert cluster.node_ids() == (1, 2)
            settings = cluster.broker_settings(["quota.window.num", "quota.window.size.seconds", CALLBACK_CLASS])
            wanted = {"quota.window.num": "3", "quota.window.size.seconds": "1"}
            assert settings.answers == {1: wanted, 2: wanted}
            assert settings.missing is None
            make_topic(kafka4_cluster.bootstrap, unique_name, partitions=4)
            assert Polling(0.05).until(lambda: _has_leaders(cluster, unique_name, 4), timeout_s=240)
            leaders = cluster.leaders(unique_name)
            assert list(leaders) == [0, 1, 2, 3]
            assert sorted(leaders.values()) == [1, 1, 2, 2]
            with pytest.raises(StoreError, match="no-such-topic"):
                cluster.leaders("no-such-topic")


def _has_leaders(cluster: ClusterClient, topic: str, partitions: int) -> bool:
    """Whether the broker that is asked has heard of a new topic's leaders: at first only the controller knows them."""
    try:
        return len(cluster.leaders(topic)) == partitions
    except StoreError:
        return False


class TestStalledBroker:
    def test_it_is_given_up_and_used_again_when_it_is_back(self, mortal_kafka4: Kafka, unique_name: str) -> None:
        entity = Entity.of(user=unique_name)
        with (
            opened(mortal_kafka4.bootstrap, timeout_s=60) as patient,
            opened(mortal_kafka4.bootstrap, timeout_s=2) as hasty,
        ):
            assert _set(patient, entity, 5.0) is None
            with (
                frozen(mortal_kafka4.servers[0].pid),
                pytest.raises(StoreUnreachableError, match="no answer") as caught,
            ):
                hasty.describe(EVERYTHING)
            assert "\n" not in caught.value.message
            assert patient.describe(entity_filter(entity)) == [QuotaEntry(entity=entity, quotas={RATE: 5.0})]
            assert _set(patient, entity, None) is None


def test_kafkas_own_tool_sees_what_we_set(kafka4: Kafka, unique_name: str) -> None:
    entity = Entity.of(user=unique_name, client_id=None)
    with opened(kafka4.bootstrap) as store:
        assert _set(store, entity, 10_485_760.0) is None
        arguments = ["--bootstrap-server", kafka4.bootstrap, "--describe", "--entity-type", "users"]
        arguments += ["--entity-name", unique_name, "--entity-type", "clients", "--entity-default"]
        result = kafka4.run_tool("kafka.admin.ConfigCommand", arguments)
        assert f"{RATE}=1.048576E7" in result.stdout, result.stderr
        assert _set(store, entity, None) is None


def test_an_error_of_the_broker_is_one_of_ours(kafka4: Kafka) -> None:
    with opened(kafka4.bootstrap) as store, pytest.raises(InvalidQuotaError):
        store.describe(QuotaFilter(components=(FilterComponent(entity_type="group", match=Match.ANY),)))


def test_a_port_that_speaks_http_is_named_after_one_contact() -> None:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Write no access log."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        address = f"127.0.0.1:{server.server_address[1]}"
        try:
            with opened(address) as store, pytest.raises(StoreError) as raised:
                store.describe(EVERYTHING)
        finally:
            server.shutdown()
            thread.join()
    assert raised.value.message == f"{address} speaks HTTP, not Kafka"
