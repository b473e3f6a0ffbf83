"""Real Kafka and ZooKeeper servers on 127.0.0.1 as context managers, for tests and benchmarks.

    with kafka_4() as kafka:              # one broker, KRaft, 4.3.1
        kafka.bootstrap                   # "127.0.0.1:12345", no authentication
        kafka.sasl_bootstrap              # SASL_PLAINTEXT with PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512, users in
                                          # `USERS`; OAUTHBEARER with unsigned tokens
        kafka.sasl_tls_bootstrap          # SASL_SSL, the same
        kafka.tls_bootstrap               # SSL; who shows `client.pem` is `User:CN=carol`, others are anonymous
        kafka.certificates                # folder with `authority.pem` and `client.pem`
    with kafka_4(brokers=2) as kafka: ... # two brokers; `kafka.bootstrap` names both
    with kafka_3() as kafka: ...          # 3.9.2 in ZooKeeper mode; `kafka.zookeeper_url` is its `zk://` address

Brokers have three quota windows of a second, so that a quota holds after three seconds, and an authorizer that allows
everything until a test sets ACLs. Topics are made on first use, with one partition.
"""

import base64
import hashlib
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

from kazoo.client import KazooClient
from tests.support.brokers.broker_properties import (
    FEW_THREADS,
    SCRAM_MECHANISMS,
    USERS,
    BrokerPorts,
    common_properties,
    kraft_properties,
    write_properties,
)
from tests.support.brokers.certificates import make_certificates
from tests.support.brokers.class_archive import Recording, recording
from tests.support.brokers.java_process import QUICK_START, JavaServer, free_port, run_tool
from tests.support.brokers.maven import KAFKA_3, KAFKA_4, MissingServerError, exclusive, jars
from tests.support.brokers.probes import accepts_connections, kafka_brokers, zookeeper_serves
from tests.support.brokers.tool_calls import CALLED_AGAIN, call_tool


def log_options(work: Path) -> list[str]:
    """The options that send the log of either generation of log4j to standard output, and so to the log file."""
    old, new = work / "log4j.properties", work / "log4j2.properties"
    old.write_text(
        "log4j.rootLogger=INFO, out\nlog4j.appender.out=org.apache.log4j.ConsoleAppender\n"
        "log4j.appender.out.layout=org.apache.log4j.PatternLayout\n"
        "log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n\n"
    )
    new.write_text(
        "rootLogger.level=INFO\nrootLogger.appenderRef.out.ref=out\nappender.out.type=Console\nappender.out.name=out\n"
        "appender.out.layout.type=PatternLayout\nappender.out.layout.pattern=[%d] %p %m (%c)%n\n"
    )
    return [f"-Dlog4j.configuration=file:{old}", f"-Dlog4j2.configurationFile=file:{new}"]


_CHROOT = "/kafka"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kafka:
    """A running cluster: comma-separated addresses of its kinds of listener, and what it was started from.

    What an external cluster lacks is empty; `zookeeper_url` is empty under KRaft.
    """

    bootstrap: str
    sasl_bootstrap: str = ""
    sasl_tls_bootstrap: str = ""
    tls_bootstrap: str = ""
    certificates: Path = Path()
    version: str
    jars: Path
    zookeeper_url: str = ""
    servers: tuple[JavaServer, ...] = ()

    def run_tool(
        self, main_class: str, arguments: Sequence[str], *, timeout_s: float = 300, stdin: str | None = None
    ) -> CompletedProcess[str]:
        """What one of Kafka's own tools answered, for instance `org.apache.kafka.tools.ProducerPerformance`."""
        if main_class in CALLED_AGAIN and stdin is None:
            return call_tool(self.jars, main_class, arguments)
        return run_tool(self.jars, main_class, arguments, timeout_s=timeout_s, stdin=stdin)

    def client_properties(self, user: str, *, mechanism: str = "SCRAM-SHA-256", tls: bool = False) -> dict[str, str]:
        """The properties, in Kafka's names, with which `user` comes in over `sasl_bootstrap`.

        With `tls` they are for `sasl_tls_bootstrap`.
        """
        if tls:
            trust = {"ssl.truststore.location": str(self.certificates / "authority.pem")}
            return {**self.client_properties(user, mechanism=mechanism), "security.protocol": "SASL_SSL", **trust}
        login = "scram.ScramLoginModule" if mechanism.startswith("SCRAM") else "plain.PlainLoginModule"
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f"org.apache.kafka.common.security.{login} required "
            f'username="{user}" password="{USERS[user]}";',
        }


@contextmanager
def kafka_4(
    *,
    brokers: int = 1,
    is_quorum: bool = False,
    quick_start: bool = False,
    advertised_host: str = "127.0.0.1",
    properties: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
) -> Iterator[Kafka]:
    """A Kafka 4 cluster under KRaft with some more broker properties, and options of its Java.

    Stopped at the end. The first broker is the controller as well; with `is_quorum` all of them are, so that any of
    them may be restarted. With `quick_start` brokers start sooner, and are slower under load. Clients are sent to
    `advertised_host`, which is an address of this machine.

    Raises `MissingServerError` where it can't be fetched or does not come up.
    """
    folder = jars(KAFKA_4)
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kafka-4-")))
        cluster_id = _random_id()
        make_certificates(work)
        controllers = {node_id: free_port() for node_id in range(1, (brokers if is_quorum else 1) + 1)}
        nodes = {node_id: BrokerPorts() for node_id in range(1, brokers + 1)}

        def configured(node_id: int) -> Path:
            settings = {
                **common_properties(work, f"data-{node_id}", nodes[node_id]),
                **kraft_properties(node_id, controllers, nodes[node_id]),
                "advertised.listeners": nodes[node_id].listeners.replace("127.0.0.1", advertised_host),
                **(FEW_THREADS if quick_start else {}),
                **(properties or {}),
            }
            configuration = write_properties(work / f"broker-{node_id}.properties", settings)
            _format_storage(work / f"data-{node_id}", node_id, cluster_id, _checkpoint(folder, configuration))
            return configuration

        configurations = [configured(node_id) for node_id in nodes]
        archive = stack.enter_context(recording(folder))
        servers = [
            _start_broker(
                stack, configuration, archive, name=f"Kafka 4 broker {node_id}", quick_start=quick_start, more=options
            )
            for node_id, configuration in zip(nodes, configurations, strict=True)
        ]
        for server, ports in zip(servers, nodes.values(), strict=True):
            server.wait_ready(
                lambda port=ports.plain: kafka_brokers(f"127.0.0.1:{port}") == brokers,  # type: ignore[misc]
                beside=servers,
            )
        archive.keep(servers[0].pid)
        yield Kafka(
            bootstrap=",".join(f"127.0.0.1:{ports.plain}" for ports in nodes.values()),
            sasl_bootstrap=",".join(f"127.0.0.1:{ports.sasl}" for ports in nodes.values()),
            sasl_tls_bootstrap=",".join(f"127.0.0.1:{ports.sasl_tls}" for ports in nodes.values()),
            tls_bootstrap=",".join(f"127.0.0.1:{ports.tls}" for ports in nodes.values()),
            certificates=work,
            version=KAFKA_4.version,
            jars=folder,
            servers=tuple(servers),
        )


@contextmanager
def kafka_3(
    *,
    zookeeper_address: str | None = None,
    quick_start: bool = False,
    properties: Mapping[str, str] | None = None,
) -> Iterator[Kafka]:
    """A Kafka 3.9 broker in ZooKeeper mode under the chroot `/kafka`, with a ZooKeeper of its own where none is given.

    Raises `MissingServerError` where it can't be fetched or does not come up.
    """
    folder = jars(KAFKA_3)
    with ExitStack() as stack:
        address = zookeeper_address or stack.enter_context(zookeeper())
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kafka-3-")))
        make_certificates(work)
        ports = BrokerPorts()
        settings = {
            **common_properties(work, "data", ports),
            "broker.id": "1",
            "zookeeper.connect": f"{address}{_CHROOT}",
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            **(FEW_THREADS if quick_start else {}),
            **(properties or {}),
        }
        configuration = write_properties(work / "broker.properties", settings)
        archive = stack.enter_context(recording(folder))
        server = _start_broker(stack, configuration, archive, name="Kafka 3.9 broker", quick_start=quick_start)
        server.wait_ready(lambda: kafka_brokers(f"127.0.0.1:{ports.plain}") == 1)
        archive.keep(server.pid)
        _add_scram_users(f"127.0.0.1:{ports.plain}")
        yield Kafka(
            bootstrap=f"127.0.0.1:{ports.plain}",
            sasl_bootstrap=f"127.0.0.1:{ports.sasl}",
            sasl_tls_bootstrap=f"127.0.0.1:{ports.sasl_tls}",
            tls_bootstrap=f"127.0.0.1:{ports.tls}",
            certificates=work,
            version=KAFKA_3.version,
            jars=folder,
            zookeeper_url=f"zk://{address}{_CHROOT}",
            servers=(server,),
        )


@contextmanager
def zookeeper() -> Iterator[str]:
    """The address (host:port) of a ZooKeeper server.

    Stopped at the end. Raises `MissingServerError` where it can't be fetched or does not come up.
    """
    with zookeeper_process() as (address, _):
        yield address


@contextmanager
def zookeeper_process() -> Iterator[tuple[str, JavaServer]]:
    """The address of a ZooKeeper server, and its process."""
    port = free_port()
    settings = {"clientPort": str(port), "clientPortAddress": "127.0.0.1", "tickTime": "500"}
    with tempfile.TemporaryDirectory(prefix="zookeeper-") as work:
        address = f"127.0.0.1:{port}"
        with closing_server(_start_zookeeper(Path(work), settings, options=())) as server:
            server.wait_ready(lambda: zookeeper_serves(address))
            yield address, server


@contextmanager
def secured_zookeeper(folder: Path) -> Iterator[str]:
    """The address of a ZooKeeper server that speaks TLS, asks for a client certificate, and for a login by SASL.

    The certificates are made in `folder`; `admin` of `USERS` may log in. Under `/secured` a cluster seems to live.
    """
    make_certificates(folder)
    port = free_port()
    settings = {
        "secureClientPort": str(port),
        "secureClientPortAddress": "127.0.0.1",
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": str(folder / "server.pem"),
        "ssl.keyStore.type": "PEM",
        "ssl.trustStore.location": str(folder / "authority.pem"),
        "ssl.trustStore.type": "PEM",
        "authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
        "sessionRequireClientSASLAuth": "true",
    }
    module = "org.apache.zookeeper.server.auth.DigestLoginModule required"
    logins = folder / "logins.conf"
    logins.write_text(f'Server {{ {module} user_admin="{USERS["admin"]}"; }};\n')
    options = [f"-Djava.security.auth.login.config={logins}"]
    with closing_server(_start_zookeeper(folder, settings, options=options)) as server:
        server.wait_ready(lambda: accepts_connections(f"127.0.0.1:{port}"))
        client = KazooClient(
            f"127.0.0.1:{port}",
            use_ssl=True,
            ca=str(folder / "authority.pem"),
            certfile=str(folder / "client.pem"),
            keyfile=str(folder / "client.pem"),
            sasl_options={"mechanism": "DIGEST-MD5", "username": "admin", "password": USERS["admin"]},
        )
        client.start()
        client.ensure_path("/secured/config")
        client.stop()
        client.close()
        yield f"127.0.0.1:{port}"


@contextmanager
def closing_server(server: JavaServer) -> Iterator[JavaServer]:
    """The server, stopped at the end."""
    try:
        yield server
    finally:
        server.stop()


def _start_zookeeper(work: Path, settings: Mapping[str, str], *, options: Sequence[str]) -> JavaServer:
    common = {"dataDir": str(work / "data"), "admin.enableServer": "false", "maxClientCnxns": "0"}
    configuration = write_properties(work / "zoo.cfg", {**common, **settings})
    return JavaServer(
        "ZooKeeper",
        jars(KAFKA_3),
        "org.apache.zookeeper.server.quorum.QuorumPeerMain",
        [str(configuration)],
        log=work / "zookeeper.log",
        options=[*log_options(work), "-Dzookeeper.forceSync=no", *QUICK_START, *options],
    )


def _checkpoint(folder: Path, configuration: Path) -> Path:
    """The first records of a cluster with the users' credentials, which Kafka's tool writes once for all runs.

    It works for two seconds, and nothing in them depends on the cluster.
    """
    users = hashlib.sha256(repr((SCRAM_MECHANISMS, sorted(USERS.items()))).encode()).hexdigest()[:8]
    checkpoint = folder.with_name(f"{folder.name}-{users}.checkpoint")
    with exclusive(checkpoint.with_suffix(".lock")), tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        if not checkpoint.is_file():
            settings = Path(scratch, "server.properties")
            settings.write_text(f"{configuration.read_text()}log.dirs={scratch}/data\n")  # of two lines the last counts
            arguments = ["format", f"--cluster-id={_random_id()}", "-c", str(settings)]
            for mechanism in SCRAM_MECHANISMS:
                for name, password in USERS.items():
                    arguments += ["--add-scram", f"{mechanism}=[name={name},iterations=4096,password={password}]"]
            result = run_tool(folder, "kafka.tools.StorageTool", arguments)
            if result.returncode != 0:
                output = f"{result.stdout}{result.stderr}"
                raise MissingServerError(f"the storage of a broker could not be formatted:\n{output}")
            Path(scratch, "data", "bootstrap.checkpoint").rename(checkpoint)
    return checkpoint


def _format_storage(data: Path, node_id: int, cluster_id: str, checkpoint: Path) -> None:
    """Make the folder of a node's data, as `kafka.tools.StorageTool` leaves it."""
    data.mkdir()
    shutil.copyfile(checkpoint, data / "bootstrap.checkpoint")
    identity = {"version": "1", "cluster.id": cluster_id, "node.id": str(node_id), "directory.id": _random_id()}
    write_properties(data / "meta.properties", identity)


def _random_id() -> str:
    """An id of 22 letters, as Kafka makes them."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes)[:22].decode()


def _add_scram_users(bootstrap: str) -> None:
    """Give the users of the SASL listener SCRAM credentials, with as few iterations as Kafka takes."""
    from kafka import KafkaAdminClient  # noqa: PLC0415 - every test run imports this module
    from kafka.admin import ScramMechanism, UserScramCredentialUpsertion  # noqa: PLC0415 - as above

    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        failed = admin.alter_user_scram_credentials(
            [
                UserScramCredentialUpsertion(name, mechanism, password, iterations=4096)
                for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
                for name, password in USERS.items()
            ]
        )
    finally:
        admin.close()
    if any(failed.values()):
        raise MissingServerError(f"SCRAM users could not be added: {failed}")


def _start_broker(
    stack: ExitStack,
    configuration: Path,
    archive: Recording,
    *,
    name: str,
    quick_start: bool,
    more: Sequence[str] = (),
) -> JavaServer:
    work = configuration.parent
    log = work / f"{configuration.stem}.log"
    options = [*log_options(work), *(QUICK_START if quick_start else ()), *archive.options, *more]
    server = JavaServer(name, archive.jars, "kafka.Kafka", [str(configuration)], log=log, options=options)
    stack.callback(server.stop)
    return server
