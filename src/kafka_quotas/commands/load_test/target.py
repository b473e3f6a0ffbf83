"""The target of a load test: an existing cluster, the embedded one, or a broker started for it.

With the daemon in front of any of them, the daemon keeps the quotas in a store of its own, and the upstream cluster is
not changed. Topics that mutation floods delete or grow are created before the load, and no others are left.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from kafka_quotas import loadtest
from kafka_quotas.commands.testbed.daemon_process import RunningDaemon, free_ports, running_daemon
from kafka_quotas.commands.testbed.kafka_broker import broker_security, kafka_jars, running_broker
from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.core.extras import find_java
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.model.setting import setting
from kafka_quotas.stores import Store, StoreSettings, open_store
from kafka_quotas.wire import NewTopic


def floods_topics(plan: loadtest.LoadPlan) -> bool:
    """Check whether the plan has mutation floods."""
    return any(isinstance(entity.flood, loadtest.MutationFlood) for entity in plan.entities)


EVENT_LOG: Final = "events"
_FLEET_TOPIC: Final = "kafka-quotas-fleet"
_DAEMON_PORTS: Final = 8  # its own, and those of brokers with low ids after it
_PATIENCE_S: Final = 180.0
"""Timeout for changes at a broker here: after a flood many others are queued before them."""
_CONNECT_S: Final = 10.0
_FIRST_CONNECT_S: Final = 20.0
"""Timeout for a login at a broker that has just started: its first ones are slow."""
_HEAP_MB: Final = 512
_HEAP_KB_PER_PARTITION: Final = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTarget:
    """The user's choice of a target, of which no more than one cluster may be named."""

    bootstrap: str | None = setting(
        "cluster",
        "--bootstrap-server HOST:PORT",
        "The cluster, or the daemon in front of it; several brokers are separated by commas.",
        default=None,
    )
    embedded: bool = setting(
        "cluster",
        "--embedded",
        "A cluster inside this process. It keeps no quotas, so it shows what the clients can do.",
        default=False,
    )
    broker_jars: Path | None = setting(
        "cluster",
        "--broker-jars DIR",
        "Start a real broker from Kafka's jars in DIR (Maven fetches them into it if it does not exist), and end it "
        "afterwards.",
        default=None,
    )
    through_daemon: bool = setting(
        "cluster",
        "--through-daemon",
        "Start our daemon in front and connect through it. It keeps the quotas; those of the cluster stay.",
        default=False,
    )
    store_url: str | None = None
    """Store of the quotas, None for the cluster itself."""
    settings: StoreSettings = field(default_factory=StoreSettings)
    command_config: Path | None = None
    """File of client properties that the settings came from."""
    window: QuotaWindow | None = None
    """Quota window of the brokers, None for the scenario's own."""
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Client properties of the load (librdkafka's names)."""
    credentials: loadtest.Credentials | None = field(default=None, repr=False)

    @property
    def is_theirs(self) -> bool:
        """Whether the cluster exists independently of the run."""
        return self.bootstrap is not None

    def names_cluster(self) -> bool:
        """Return whether a cluster was named, without which it is the embedded one, and refuse several."""
        clusters = {
            "--bootstrap-server": self.bootstrap is not None,
            "--embedded": self.embedded,
            "--broker-jars": self.broker_jars is not None,
        }
        names = [name for name, is_named in clusters.items() if is_named]
        if len(names) > 1:
            raise UsageError(f"{' and '.join(names)} exclude each other", hint="each says what to put under load")
        return bool(names)

    def capabilities(self, limits: loadtest.HostLimits) -> loadtest.TargetCapabilities:
        """Return the target's capabilities, for the checks of a scenario."""
        return loadtest.TargetCapabilities(
            embedded=self.bootstrap is None and self.broker_jars is None,
            own_broker=self.bootstrap is None and self.broker_jars is not None,
            through_daemon=self.through_daemon,
            limits=limits,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TestBed:
    """A running cluster, with its addresses for clients of the load and for administration."""

    bootstrap: str
    admin: str
    store_url: str
    """Store of the quotas that a run sets: the daemon's where one is in front."""
    settings: StoreSettings
    folder: Path
    embedded: loadtest.EmbeddedCluster | None = None
    """The cluster inside this process, which creates topics on its own; None for any other."""
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    loader_properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Client properties for filling topics, at the address for administration."""
    credentials: loadtest.Credentials = field(default=loadtest.no_credentials, repr=False)

    def store(self) -> Store:
        """Open a connection to the store of the quotas."""
        return open_store(self.store_url, settings=self.settings)

    def topics(self) -> loadtest.TopicAdmin:
        """Open a connection that administers topics."""
        return loadtest.TopicAdmin(self.admin, settings=self.settings)

    def make_flood_topics(self, plan: loadtest.LoadPlan) -> None:
        """Create the topics that each flood deletes or grows, and remove those of an earlier run."""
        floods = [entity.flood for entity in plan.entities if isinstance(entity.flood, loadtest.MutationFlood)]
        if not floods:
            return
        with closing(self.topics()) as admin:
            for flood in floods:
                admin.remove(flood.prefix)
                before = loadtest.MutationPlan(flood).topics_before()
                if before:
                    admin.make(before)

    def deleted_topics(self, plan: loadtest.LoadPlan) -> tuple[str, ...]:
        """Return the topics of a load that are missing after it, one line each."""
        moved = sorted({load.topic for load in plan.entities if load.workload.moves_records})
        if self.embedded is not None or not moved:
            return ()
        settings = replace(self.settings, timeout_s=loadtest.PATIENCE_S)
        try:
            with closing(loadtest.TopicAdmin(self.admin, settings=settings)) as admin:
                return tuple(f"topic {name} was deleted during the run" for name in admin.missing(moved))
        except KafkaQuotasError:
            return ()  # the admin user may not list topics, or the target is gone, which its watch reports

    def make(self, topics: tuple[loadtest.ScenarioTopic, ...], *, prefix: str) -> None:
        """Create the topics under the prefix."""
        wanted = [
            NewTopic(f"{prefix}{topic.name}", topic.partitions, topic.replication_factor)
            for topic in topics
            if not topic.is_there
        ]
        if self.embedded is not None:
            for topic in wanted:
                self.embedded.make_topic(topic.name)
        elif wanted:
            with closing(self.topics()) as admin:
                admin.make(wanted)

    def fill(self, topics: tuple[loadtest.ScenarioTopic, ...], *, prefix: str) -> None:
        """Fill the topics under the prefix with records."""
        for topic in topics:
            if topic.is_there or not topic.fill:
                continue
            name = f"{prefix}{topic.name}"
            if self.embedded is not None:
                self.embedded.fill(name, records=topic.fill, record_size=topic.record_size)
            else:
                loadtest.fill_topic(
                    self.admin,
                    name,
                    partitions=topic.partitions,
                    records=topic.fill,
                    record_size=topic.record_size,
                    properties=self.loader_properties,
                )


@contextmanager
def running_test_bed(target: LoadTarget, scenario: loadtest.Scenario, folder: Path) -> Iterator[TestBed]:
    """Provide the cluster for the block, and stop whatever was started for it afterwards."""
    with ExitStack() as stack:
        if target.broker_jars is not None and target.bootstrap is None:
            yield _own_broker(stack, target, target.broker_jars, scenario, folder)
            return
        embedded = stack.enter_context(loadtest.EmbeddedCluster()) if target.bootstrap is None else None
        bootstrap = target.bootstrap or (embedded.bootstrap if embedded is not None else "")
        credentials = target.credentials or loadtest.no_credentials
        is_own_store = target.through_daemon or embedded is not None
        yield TestBed(
            bootstrap=bootstrap,
            admin=bootstrap,
            store_url=target.store_url or (_own_store(folder) if is_own_store else f"kafka://{bootstrap}"),
            settings=target.settings,
            folder=folder,
            embedded=embedded,
            properties=target.properties,
            loader_properties={**target.properties, **dict(credentials(loadtest.client_names(scenario)[0]))},
            credentials=credentials,
        )


@contextmanager
def running_environment(
    target: LoadTarget, bed: TestBed, scenario: loadtest.Scenario, *, prefix: str, with_policy: bool, name: str
) -> Iterator[loadtest.Environment]:
    """Provide the address that the clients of one run connect to: the cluster, or a daemon in front of it.

    With `with_policy` the daemon gets the scenario's policy, which limits too.
    """
    direct = loadtest.Environment(
        bootstrap=bed.bootstrap,
        prefix=prefix,
        connect_timeout_s=_CONNECT_S if target.is_theirs else _FIRST_CONNECT_S,
        credentials=bed.credentials,
        properties=bed.properties,
    )
    if not target.through_daemon:
        yield direct
        return
    folder = bed.folder / name
    folder.mkdir()
    options = _daemon_options(bed, scenario, folder, prefix=prefix if with_policy else None)
    with ExitStack() as stack:
        daemons: list[RunningDaemon] = []
        is_restarted = bool(scenario.daemon.restarts_s)
        for number in range(1, scenario.daemon.count + 1):
            own = folder / str(number)
            own.mkdir()
            daemon = running_daemon(
                upstream=bed.bootstrap,
                store_url=bed.store_url,
                window=scenario.window,
                folder=own,
                options=[
                    *("--event-log", str(folder / EVENT_LOG / str(number))),
                    *(("--state-file", str(own / "state")) if is_restarted else ()),
                    *options,
                ],
                port=free_ports(_DAEMON_PORTS) if is_restarted else 0,
            )
            daemons.append(stack.enter_context(daemon))
        addresses = tuple(each.bootstrap for each in daemons)
        yield replace(
            direct,
            bootstrap=",".join(addresses),
            addresses=addresses if len(addresses) > 1 else (),
            restarts=tuple(each.restart for each in daemons),
            is_fleet=scenario.daemon.is_fleet,
        )


def _daemon_options(bed: TestBed, scenario: loadtest.Scenario, folder: Path, *, prefix: str | None) -> list[str]:
    """Return the options of a scenario's daemons, whose files are written into `folder`.

    The scenario's policy is left out where there is no `prefix` of its topics.
    """
    options = ["--event-log-rotate", "3600", *scenario.daemon.options]
    if scenario.daemon.is_fleet:
        options += ["--fleet", f"kafka://{bed.bootstrap}/{_FLEET_TOPIC}", "--fleet-name", folder.name]
    if prefix is not None and scenario.daemon.policy:
        policy = folder / "policy.toml"
        policy.write_text(scenario.daemon.policy.replace(loadtest.PREFIX, prefix), encoding="utf-8")
        options += ["--policy", str(policy)]
    if scenario.daemon.costs:
        costs = folder / "costs.json"
        costs.write_text(scenario.daemon.costs, encoding="utf-8")
        options += ["--cost-model", str(costs)]
    return options


def _own_broker(stack: ExitStack, target: LoadTarget, jars: Path, scenario: loadtest.Scenario, folder: Path) -> TestBed:
    java = find_java()
    users = [name.user for name in loadtest.client_names(scenario) if name.user is not None]
    security = broker_security(scenario.security, users, folder=folder, java=java)
    bootstrap, secured = stack.enter_context(
        running_broker(
            java=java,
            jars=kafka_jars(jars.absolute()),
            folder=folder,
            window=scenario.window,
            security=security,
            settings={"controller.quorum.append.linger.ms": "0", **dict(scenario.broker_settings)},
            logs_requests=False,
            heap_mb=_HEAP_MB + loadtest.partitions_needed(scenario) * _HEAP_KB_PER_PARTITION // 1024,
        )
    )
    return TestBed(
        bootstrap=secured or bootstrap,
        admin=bootstrap,
        store_url=_own_store(folder) if target.through_daemon else f"kafka://{bootstrap}",
        settings=StoreSettings(timeout_s=_PATIENCE_S),
        folder=folder,
        properties={**target.properties, **security.common},
        credentials=(lambda name: security.by_user.get(name.user or "", ()))
        if security.protocol
        else target.credentials or loadtest.no_credentials,
    )


def _own_store(folder: Path) -> str:
    return f"local:{folder / 'quotas.db'}"
