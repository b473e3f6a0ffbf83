"""Properties of the brokers that tests start: their listeners, users, quota windows, and what keeps them small."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.brokers.java_process import free_port

USERS: Mapping[str, str] = {name: f"{name}-secret" for name in ("admin", "alice", "bob", "carol", "mallory")}
"""The users of the SASL listener with their passwords, the same for every mechanism."""

SCRAM_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")

QUOTA_WINDOW = {
    "quota.window.num": "3",
    "quota.window.size.seconds": "1",
    "controller.quota.window.num": "3",
    "controller.quota.window.size.seconds": "1",
}
_PROTOCOL_MAP = "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL"


@dataclass(frozen=True, slots=True)
class BrokerPorts:
    """The ports of one broker's listeners."""

    plain: int = field(default_factory=free_port)
    sasl: int = field(default_factory=free_port)
    sasl_tls: int = field(default_factory=free_port)
    tls: int = field(default_factory=free_port)

    @property
    def listeners(self) -> str:
        """The listeners, as `listeners` and `advertised.listeners` want them."""
        places = {"PLAINTEXT": self.plain, "SASL_PLAINTEXT": self.sasl, "SSL": self.tls, "SASL_SSL": self.sasl_tls}
        return ",".join(f"{name}://127.0.0.1:{port}" for name, port in places.items())


FEW_THREADS = {"num.io.threads": "4", "num.network.threads": "1", "background.threads": "2"}
"""For a broker that has little to do: threads that nobody uses take work as well, and each listener has its own."""


def common_properties(work: Path, data: str, ports: BrokerPorts) -> dict[str, str]:
    """What every broker is given, of either version.

    Certificates and data lie in `work`.
    """
    plain_users = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
    package = "org.apache.kafka.common.security"
    logins = {
        "plain": f"{package}.plain.PlainLoginModule required {plain_users};",
        "scram-sha-256": f"{package}.scram.ScramLoginModule required;",
        "scram-sha-512": f"{package}.scram.ScramLoginModule required;",
        "oauthbearer": f'{package}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="admin";',
    }
    return {
        **QUOTA_WINDOW,
        "log.dirs": str(work / data),
        "listeners": ports.listeners,
        "advertised.listeners": ports.listeners,
        "listener.security.protocol.map": _PROTOCOL_MAP,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(work / "server.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(work / "authority.pem"),
        "ssl.client.auth": "requested",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        **{
            f"listener.name.{listener}.{mechanism}.sasl.jaas.config": login
            for listener in ("sasl_plaintext", "sasl_ssl")
            for mechanism, login in logins.items()
        },
        "connections.max.reauth.ms": "3600000",  # without it a second login on one connection is refused
        "super.users": "User:ANONYMOUS;User:admin",
        "allow.everyone.if.no.acl.found": "true",
        "num.partitions": "1",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "log.cleaner.dedupe.buffer.size": "8388608",
        "message.max.bytes": "2097152",
    }


def kraft_properties(node_id: int, controllers: Mapping[int, int], ports: BrokerPorts) -> dict[str, str]:
    """What a node of a KRaft cluster is given on top.

    `controllers` are ports by node id.
    """
    listeners = ports.listeners
    if node_id in controllers:
        listeners += f",CONTROLLER://127.0.0.1:{controllers[node_id]}"
    return {
        "controller.quorum.voters": ",".join(f"{node}@127.0.0.1:{port}" for node, port in controllers.items()),
        "process.roles": "broker,controller" if node_id in controllers else "broker",
        "node.id": str(node_id),
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": f"{_PROTOCOL_MAP},CONTROLLER:PLAINTEXT",
        "listeners": listeners,
        "advertised.listeners": listeners,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "controller.quorum.append.linger.ms": "0",
        "metadata.max.idle.interval.ms": "0",  # no empty record twice a second: a third of an idle broker's work
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
    }


def write_properties(path: Path, properties: Mapping[str, str]) -> Path:
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return path
