"""The ZooKeeper store against a real ensemble: exact znodes, access lists, refusals, and servers that go away."""

import json
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl, make_digest_acl
from tests.support.brokers.broker_properties import USERS
from tests.support.brokers.fake_broker import fake_broker
from tests.support.brokers.java_process import java
from tests.support.brokers.servers import Kafka, secured_zookeeper, zookeeper_process
from tests.support.brokers.tls_leaks import leaked_sockets_collected
from tests.support.processes.frozen import frozen

from kafka_quotas.core.errors import InvalidQuotaError, StoreError, StoreRefusedError, StoreUnreachableError
from kafka_quotas.core.model.entity import EVERYTHING, Entity, FilterComponent, Match, QuotaFilter
from kafka_quotas.stores import open_store
from kafka_quotas.stores.address import StoreSettings
from kafka_quotas.stores.store import Alteration, QuotaEntry, Store
from kafka_quotas.stores.zookeeper.session import ZnodeStep, ZooKeeperSession

RATE = "producer_byte_rate"
ALICE = Entity.of(user="alice")
QUICK = StoreSettings(timeout_s=2.0)


@pytest.fixture
def raw(zookeeper_chroot: str) -> Iterator[Any]:
    """A bare client under the same chroot."""
    with _client(zookeeper_chroot) as client:
        yield client


@pytest.fixture
def store(zookeeper_chroot: str) -> Iterator[Store]:
    with closing(open_store(zookeeper_chroot)) as store:
        yield store


@contextmanager
def _client(url: str, **arguments: Any) -> Iterator[Any]:
    client = KazooClient(url.removeprefix("zk://"), **arguments)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


def _alter(store: Store, entity: Entity, **changes: float | None) -> Any:
    (result,) = store.alter([Alteration(entity=entity, changes=changes)])
    return result.error


class TestZnodes:
    def test_znode_and_notification_are_kafkas_own(self, store: Store, raw: Any) -> None:
        entity = Entity.of(user="CN=Alice, O=R&D", client_id=None)
        assert _alter(store, entity, producer_byte_rate=1024.0, request_percentage=12.5) is None
        data, _ = raw.get("/config/users/CN%3DAlice%2C%20O%3DR%26D/clients/<default>")
        config = {RATE: "1024", "request_percentage": "12.5"}
        assert json.loads(data) == {"version": 1, "config": config}
        (change,) = raw.get_children("/config/changes")
        assert change == "config_change_0000000000"
        notification = {"version": 2, "entity_path": "users/CN%3DAlice%2C%20O%3DR%26D/clients/<default>"}
        assert json.loads(raw.get(f"/config/changes/{change}")[0]) == notification

    def test_every_alteration_is_notified_also_one_that_changes_nothing(self, store: Store, raw: Any) -> None:
        for value in (5.0, 5.0, None, None):
            assert _alter(store, ALICE, producer_byte_rate=value) is None
        assert len(raw.get_children("/config/changes")) == 4

    def test_validate_only_and_refusals_write_nothing_at_all(self, store: Store, raw: Any) -> None:
        store.alter([Alteration(entity=ALICE, changes={RATE: 1.0})], validate_only=True)
        assert _alter(store, ALICE, producer_byte_rate=-1.0) is not None
        assert raw.get_children("/config") == []

    def test_znodes_of_no_use_go_and_others_stay(self, store: Store, raw: Any) -> None:
        pair = Entity.of(user="alice", client_id="app")
        _alter(store, pair, producer_byte_rate=1.0)
        _alter(store, ALICE, producer_byte_rate=1.0)
        _alter(store, ALICE, producer_byte_rate=None)
        assert json.loads(raw.get("/config/users/alice")[0]) == {"version": 1, "config": {}}
        _alter(store, pair, producer_byte_rate=None)
        assert raw.get_children("/config/users") == []

    def test_what_brokers_wrote_is_read(self, store: Store, raw: Any) -> None:
        odd = {
            "users/null": b"",
            "users/nojson": b"nojson",
            "users/scram": b'{"version":1,"config":{"SCRAM-SHA-256":"salt=x"}}',
            "users/exponent": b'{"version":1,"config":{"request_percentage":"1.0E-4","%s":"1.0E7"}}' % RATE.encode(),
            "clients/other": b'{"version":9,"config":{"%s":"7","unknown":"x"},"more":1}' % RATE.encode(),
            "ips/10.0.0.1": b'{"config":{"connection_creation_rate":"3"}}',
        }
        for path, data in odd.items():
            raw.create(f"/config/{path}", data, makepath=True)
        assert {str(entry.entity): dict(entry.quotas) for entry in store.describe(EVERYTHING)} == {
            "user exponent": {"request_percentage": 1e-4, RATE: 1e7},
            "client-id other": {RATE: 7.0},
            "ip 10.0.0.1": {"connection_creation_rate": 3.0},
        }

    @pytest.mark.parametrize("data", [b'{"config":{"producer_byte_rate":5}}', b'{"config":{"producer_byte_rate":"x"}}'])
    def test_a_znode_that_brokers_can_not_read_is_named(self, store: Store, raw: Any, data: bytes) -> None:
        raw.create("/config/users/alice", data, makepath=True)
        with pytest.raises(StoreError, match="/config/users/alice holds something that is not a quota"):
            store.describe(EVERYTHING)

    @pytest.mark.parametrize("name", [".", ".."])
    def test_names_that_are_no_path_are_refused(self, store: Store, name: str) -> None:
        error = _alter(store, Entity.of(user=name), producer_byte_rate=1.0)
        assert isinstance(error, InvalidQuotaError)
        component = FilterComponent(entity_type="user", match=Match.EXACT, name=name)
        assert store.describe(QuotaFilter(components=(component,), strict=True)) == []

    def test_only_allow_invalid_takes_what_zookeeper_takes(self, zookeeper_chroot: str, store: Store) -> None:
        assert isinstance(_alter(store, ALICE, request_percentage=-1.0), InvalidQuotaError)
        assert isinstance(_alter(store, Entity.of(ip="::1"), connection_creation_rate=1.0), InvalidQuotaError)
        with closing(open_store(zookeeper_chroot, settings=StoreSettings(allow_invalid=True))) as lax:
            assert _alter(lax, ALICE, request_percentage=-1.0, producer_byte_rate=0.0) is None
            assert isinstance(_alter(lax, ALICE, producer_byte_rate=1.5), InvalidQuotaError)
        (entry,) = store.describe(EVERYTHING)
        assert entry.quotas == {"request_percentage": -1.0, RATE: 0.0}


class TestController:
    @pytest.mark.parametrize(
        ("path", "content"),
        [
            ("/controller", {"version": 2, "brokerid": 3000, "timestamp": "1", "kraftControllerEpoch": 5}),
            ("/migration", {"version": 0, "kraft_controller_id": 3000, "kraft_controller_epoch": 5}),
        ],
    )
    def test_nothing_is_written_where_kraft_took_over(
        self, store: Store, raw: Any, path: str, content: dict[str, object]
    ) -> None:
        raw.create(path, json.dumps(content).encode())
        for validate_only in (True, False):
            (result,) = store.alter([Alteration(entity=ALICE, changes={RATE: 1.0})], validate_only=validate_only)
            assert isinstance(result.error, StoreRefusedError)
            assert "KRaft controller has taken over" in result.error.message
            assert "--bootstrap-server" in (result.error.hint or "")
        assert store.describe(EVERYTHING) == []

    def test_one_that_takes_over_between_reading_and_writing_is_noticed(
        self, store: Store, raw: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        broker = json.dumps({"version": 2, "brokerid": 1, "timestamp": "1", "kraftControllerEpoch": -1}).encode()
        kraft = json.dumps({"version": 2, "brokerid": 3000, "timestamp": "2", "kraftControllerEpoch": 5}).encode()
        raw.create("/controller", broker)
        raw.create("/controller_epoch", b"1")
        real = ZooKeeperSession.commit

        def overtaken(session: ZooKeeperSession, steps: Sequence[ZnodeStep], **options: Any) -> bool:
            if any(step.action in ("set_data", "create") and step.path.startswith("/config/users/") for step in steps):
                taking_over = raw.transaction()  # as KafkaZkClient does it
                taking_over.set_data("/controller_epoch", b"2")
                taking_over.delete("/controller")
                taking_over.create("/controller", kraft)
                taking_over.commit()
            return real(session, steps, **options)

        monkeypatch.setattr(ZooKeeperSession, "commit", overtaken)
        (result,) = store.alter([Alteration(entity=Entity.of(user="alice"), changes={RATE: 1000.0})])
        assert isinstance(result.error, StoreRefusedError)
        assert "KRaft controller has taken over" in result.error.message
        assert raw.exists("/config/users/alice") is None

    def test_a_broker_as_controller_is_fine(self, store: Store, raw: Any) -> None:
        content = {"version": 2, "brokerid": 1, "timestamp": "1", "kraftControllerEpoch": -1}
        raw.create("/controller", json.dumps(content).encode())
        assert _alter(store, ALICE, producer_byte_rate=1.0) is None

    def test_a_chroot_without_kafka_is_refused(self, zookeeper_chroot: str) -> None:
        with closing(open_store(f"{zookeeper_chroot}/kafak")) as store:
            assert isinstance(_alter(store, ALICE, producer_byte_rate=1.0), StoreRefusedError)
            with pytest.raises(StoreRefusedError, match=r"no Kafka cluster at .*/kafak") as caught:
                store.describe(EVERYTHING)
            assert "chroot" in (caught.value.hint or "")


class TestCredentials:
    def test_a_password_survives_its_users_quotas(self, kafka3: Kafka) -> None:
        with _client(kafka3.zookeeper_url) as raw, closing(open_store(kafka3.zookeeper_url)) as store:
            before = json.loads(raw.get("/config/users/alice")[0])["config"]
            assert "SCRAM-SHA-256" in before
            assert _alter(store, ALICE, producer_byte_rate=1e9) is None
            assert json.loads(raw.get("/config/users/alice")[0])["config"] == {**before, RATE: "1000000000"}
            assert _alter(store, ALICE, producer_byte_rate=None) is None
            assert json.loads(raw.get("/config/users/alice")[0])["config"] == before
        settings = StoreSettings(client_properties=kafka3.client_properties("alice"))
        with closing(open_store(f"kafka://{kafka3.sasl_bootstrap}", settings=settings)) as login:
            assert login.describe(EVERYTHING) is not None

    def test_new_znodes_have_the_access_list_of_their_folder(self, zookeeper_chroot: str, raw: Any) -> None:
        digest = make_digest_acl("broker", "secret", all=True)
        raw.create("/config/users", acl=[digest])
        raw.create("/config/changes", acl=[digest, make_acl("world", "anyone", read=True)])
        with closing(open_store(zookeeper_chroot)) as nobody:
            error = _alter(nobody, ALICE, producer_byte_rate=1.0)
            assert isinstance(error, StoreRefusedError)
            assert "denied access" in error.message
            assert "zookeeper.auth" in (error.hint or "")
        properties = {"zookeeper.auth": "digest:broker:secret"}
        settings = StoreSettings(client_properties=properties)
        with closing(open_store(zookeeper_chroot, settings=settings)) as broker:
            assert _alter(broker, Entity.of(user="alice", client_id="app"), producer_byte_rate=1.0) is None
            assert len(broker.describe(EVERYTHING)) == 1
        with _client(zookeeper_chroot, auth_data=[("digest", "broker:secret")]) as broker_client:
            for path in ("/config/users/alice", "/config/users/alice/clients", "/config/users/alice/clients/app"):
                assert broker_client.get_acls(path)[0] == [digest]
            (change,) = broker_client.get_children("/config/changes")
            assert len(broker_client.get_acls(f"/config/changes/{change}")[0]) == 2
        assert "secret" not in repr(settings)


class TestUnreachable:
    def test_a_refused_connection_is_told_at_once(self) -> None:
        with closing(open_store("zk://127.0.0.1:1,127.0.0.1:2/kafka")) as store:
            with pytest.raises(StoreUnreachableError, match="connection refused") as caught:
                store.describe(EVERYTHING)
            assert "\n" not in caught.value.message
            with pytest.raises(StoreUnreachableError):
                store.alter([Alteration(entity=ALICE, changes={RATE: 1.0})])

    def test_a_port_that_is_no_zookeeper_is_given_up(self, kafka3: Kafka) -> None:
        with (
            closing(open_store(f"zk://{kafka3.bootstrap}", settings=QUICK)) as store,
            pytest.raises(StoreUnreachableError, match="no answer"),
        ):
            store.describe(EVERYTHING)

    def test_a_port_that_ends_every_connection_is_given_up_before_the_time_is_up(self) -> None:
        with (
            fake_broker(lambda _: None) as nobody,
            closing(open_store(f"zk://{nobody.address}")) as store,
            pytest.raises(StoreUnreachableError, match="ended 5 connections"),
        ):
            store.describe(EVERYTHING)

    def test_a_stalled_server_is_given_up_and_used_again_when_it_is_back(self) -> None:
        with zookeeper_process() as (address, server), _client(f"zk://{address}") as raw:
            raw.ensure_path("/config")
            with closing(open_store(f"zk://{address}", settings=QUICK)) as store:
                assert _alter(store, ALICE, producer_byte_rate=1.0) is None
                with frozen(server.pid):
                    with pytest.raises(StoreUnreachableError, match="no answer"):
                        store.alter([Alteration(entity=ALICE, changes={RATE: 2.0})])
                    with pytest.raises(StoreUnreachableError):
                        store.describe(EVERYTHING)
                assert store.describe(EVERYTHING) == [QuotaEntry(entity=ALICE, quotas={RATE: 1.0})]
                assert _alter(store, ALICE, producer_byte_rate=3.0) is None


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of a secured ensemble, and the folder with its certificates."""
    if java() is None:
        pytest.skip("needs Java to start a real server, and there is no java on the path")
    folder = tmp_path_factory.mktemp("tls")
    with secured_zookeeper(folder) as address:
        yield address, folder


@pytest.fixture
def _leaks_collected() -> Iterator[None]:
    with leaked_sockets_collected():
        yield


@pytest.mark.filterwarnings("ignore:.*SSLSocket:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("_leaks_collected")
class TestSecured:
    """An ensemble that takes SASL logins, over TLS."""

    def _settings(self, folder: Path, password: str, **more: str) -> StoreSettings:
        login = "org.apache.zookeeper.server.auth.DigestLoginModule required"
        return StoreSettings(
            timeout_s=5.0,
            client_properties={
                "zookeeper.ssl.client.enable": "true",
                "zookeeper.ssl.truststore.location": str(folder / "authority.pem"),
                "zookeeper.ssl.keystore.location": str(folder / "client.pem"),
                "zookeeper.sasl.jaas.config": f'{login} username="admin" password="{password}";',
                **more,
            },
        )

    def test_login_over_tls(self, secured: tuple[str, Path]) -> None:
        address, folder = secured
        settings = self._settings(folder, USERS["admin"])
        with closing(open_store(f"zk://{address}/secured", settings=settings)) as store:
            assert _alter(store, ALICE, producer_byte_rate=1.0) is None
            assert store.describe(EVERYTHING) == [QuotaEntry(entity=ALICE, quotas={RATE: 1.0})]

    def test_a_wrong_password_is_refused(self, secured: tuple[str, Path]) -> None:
        address, folder = secured
        with (
            closing(open_store(f"zk://{address}/secured", settings=self._settings(folder, "wrong"))) as store,
            pytest.raises(StoreRefusedError, match="refused the credentials"),
        ):
            store.describe(EVERYTHING)

    def test_an_authority_that_is_not_trusted_is_no_connection(self, secured: tuple[str, Path]) -> None:
        address, folder = secured
        settings = self._settings(
            folder, USERS["admin"], **{"zookeeper.ssl.truststore.location": str(folder / "stranger.pem")}
        )
        with (
            closing(open_store(f"zk://{address}/secured", settings=settings)) as store,
            pytest.raises(StoreRefusedError, match="no TLS connection") as caught,
        ):
            store.describe(EVERYTHING)
        assert "trust store" in (caught.value.hint or "")
