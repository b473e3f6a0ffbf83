"""`kafka-quotas doctor` on real clusters: what only brokers and ZooKeeper can tell."""

import json
from pathlib import Path
from typing import Any

from kafka import KafkaAdminClient
from kafka.admin import ACL, ACLOperation, ACLPermissionType, NewTopic, ResourcePattern, ResourceType
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl
from tests.support.brokers.servers import Kafka
from tests.support.processes.awaiting import await_true
from tests.support.processes.run_cli import run_cli

from kafka_quotas.stores.store import Polling

CONFIGS = "kafka.admin.ConfigCommand"


def findings(*store: str) -> list[Any]:
    code, out, err = run_cli("doctor", *store, "--output", "json")
    document = json.loads(out)
    assert code == int(any(each["severity"] == "error" for each in document["findings"])), err
    return [(each["check"], each["about"]) for each in document["findings"]]


def test_a_replication_throttle_left_behind_in_kafka(kafka4: Kafka) -> None:
    at = ("--bootstrap-server", kafka4.bootstrap)
    alter = [*at, "--alter", "--entity-type", "brokers", "--entity-name", "1"]
    code, out, _ = run_cli("doctor", *at, "--output", "json")
    assert (code, json.loads(out)["not_looked_at"]) == (0, [])
    name = "follower.replication.throttled.rate"
    assert ("replication-throttle", "broker 1") not in findings(*at)
    kafka4.run_tool(CONFIGS, [*alter, "--add-config", f"{name}=1000000"])
    try:
        # A broker answers by what it has read of the controller's log, which may be a moment later.
        await_true(lambda: ("replication-throttle", "broker 1") in findings(*at), "the throttle shows at the broker")
    finally:
        kafka4.run_tool(CONFIGS, [*alter, "--delete-config", name])


def test_capacity_is_that_of_the_broker(kafka4: Kafka, unique_name: str) -> None:
    at = ("--bootstrap-server", kafka4.bootstrap)
    assert run_cli("alter", *at, "--user", unique_name, "--add-config", "request_percentage=100000")[0] == 0
    try:
        assert ("above-capacity", f"user {unique_name}") in findings(*at)
    finally:
        run_cli("alter", *at, "--user", unique_name, "--delete-config", "request_percentage")


def test_what_is_left_over_in_zookeeper(zookeeper_chroot: str) -> None:
    client = KazooClient(zookeeper_chroot.removeprefix("zk://"))
    client.start()
    try:
        client.create("/config/users/<default>", b'{"version":1,"config":{}}', makepath=True)
        client.create("/config/users/scram", b'{"version":1,"config":{"SCRAM-SHA-256":"salt=..."}}')
        client.create("/config/users/alice/clients/gone", b"", makepath=True)
        client.create(
            "/config/topics/t", b'{"version":1,"config":{"leader.replication.throttled.replicas":"*"}}', makepath=True
        )
        client.create("/brokers/ids/7", b'{"version":4,"host":"127.0.0.1","port":1}', makepath=True)
        client.create("/brokers/ids/8", b'{"version":5,"host":"127.0.0.1","port":2}')
        client.create("/config/users/bob", b'{"version":1,"config":{"controller_mutation_rate":"5.0"}}')
        assert findings("--store", zookeeper_chroot) == [
            ("broker-too-old", "user bob"),
            ("empty-znode", "/config/users/<default>"),
            ("replication-throttle", "topic t"),
            ("empty-znode", "/config/users/alice/clients/gone"),
        ]
        client.create("/admin/reassign_partitions", b"{}", makepath=True)
        assert ("replication-throttle", "topic t") not in findings("--store", zookeeper_chroot)
    finally:
        client.stop()
        client.close()


def test_a_znode_that_cannot_be_read_does_not_hide_the_others(zookeeper_chroot: str) -> None:
    client = KazooClient(zookeeper_chroot.removeprefix("zk://"))
    client.start()
    try:
        client.create("/config/users/bob", b'{"version":1,"config":{"producer_byte_rate":"1"}}', makepath=True)
        client.create("/config/users/odd", b'{"version":1,"config":{"producer_byte_rate":"many"}}')
        client.create("/config/users/raw", b'{"version":1,"config":{"producer_byte_rate":7}}')
        client.ensure_path("/config/clients")
        client.create("/config/clients/hidden", b"{}", acl=[make_digest_acl("root", "x", all=True)])
        code, out, _ = run_cli("doctor", "--store", zookeeper_chroot, "--output", "json")
        document = json.loads(out)
        assert (code, document["entities"]) == (1, 1)
        assert {
            each["about"]: (each["check"], each["finding"].rpartition(": ")[2]) for each in document["findings"]
        } == {
            "/config/users/odd": ("unreadable-znode", "'many'"),
            "/config/users/raw": ("unreadable-znode", "Expected `String` value, received 7"),
            "/config/clients/hidden": ("unreadable-znode", f"{zookeeper_chroot} denied access"),
            "user bob": ("below-one-batch", "each one is followed by a wait"),
        }
    finally:
        client.stop()
        client.close()


def test_what_an_acl_forbids_to_look_at_is_named(kafka4: Kafka, unique_name: str, tmp_path: Path) -> None:
    admin = KafkaAdminClient(bootstrap_servers=kafka4.bootstrap)
    admin.create_topics([NewTopic(unique_name, num_partitions=1, replication_factor=1)])
    acl = ACL(
        principal="User:mallory",
        host="*",
        operation=ACLOperation.DESCRIBE_CONFIGS,
        permission_type=ACLPermissionType.DENY,
        resource_pattern=ResourcePattern(ResourceType.TOPIC, unique_name),
    )
    allowed = ACL(
        principal="User:*",
        host="*",
        operation=ACLOperation.ALL,
        permission_type=ACLPermissionType.ALLOW,
        resource_pattern=ResourcePattern(ResourceType.TOPIC, unique_name),
    )
    properties = tmp_path / "client.properties"
    login = kafka4.client_properties("mallory")
    properties.write_text("".join(f"{name}={value}\n" for name, value in login.items()))
    admin.create_acls([acl, allowed])
    said: list[str] = []

    def told() -> bool:
        at = ("--bootstrap-server", kafka4.sasl_bootstrap, "--command-config", str(properties))
        code, out, _ = run_cli("doctor", *at, "--output", "json")
        said[:] = json.loads(out)["not_looked_at"] if code == 0 else []
        return bool(said)

    try:
        assert Polling(0.1).until(told, timeout_s=240)
    finally:
        admin.delete_acls([acl, allowed])
        admin.delete_topics([unique_name])
        admin.close()
    assert "DescribeConfigs on the topic is missing" in said[0]


def test_alter_warns_of_brokers_that_are_too_old_for_a_key(
    zookeeper_chroot: str, kafka4: Kafka, unique_name: str
) -> None:
    client = KazooClient(zookeeper_chroot.removeprefix("zk://"))
    client.start()
    client.create("/brokers/ids/7", b'{"version":4}', makepath=True)
    client.stop()
    client.close()
    options = ("alter", "--user", unique_name, "--dry-run", "--add-config")
    mutations = "controller_mutation_rate=5"
    _, _, err = run_cli(*options, mutations, "--store", zookeeper_chroot)
    assert "warning: broker 7 is older than Kafka 2.7 and ignores controller_mutation_rate\n" in err
    _, _, err = run_cli(*options, "producer_byte_rate=5MB", "--store", zookeeper_chroot)
    assert "warning" not in err
    code, _, err = run_cli(*options, mutations, "--bootstrap-server", kafka4.bootstrap)
    assert (code, "warning" in err) == (0, False)
