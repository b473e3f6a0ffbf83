"""`kafka-quotas load-test produce`, `consume`, `requests`, `mutate` and `connect`: scenarios that are typed.

They offer the settings that people type. All others of a client are for scenario files, which `load-test run` takes.
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Final, TypeVar

from kafka_quotas import loadtest
from kafka_quotas.cli.framework.option_groups import Without, option, option_group, option_info
from kafka_quotas.cli.framework.store_choice import choose_store
from kafka_quotas.cli.load_test.options import ClientWindow, LoadWindowOptions, ResultOutput, TargetOptions
from kafka_quotas.cli.load_test.scenarios import note_step, run_and_keep, with_window
from kafka_quotas.cli.options.windows import ONLY_CONTROLLER
from kafka_quotas.cli.output.render import write
from kafka_quotas.commands.load_test.request import RunRequest, RunTerms
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.entity import ABSENT, Entity
from kafka_quotas.core.model.quota_key import CONNECTION_CREATION_RATE, PRODUCER_BYTE_RATE, QuotaKey
from kafka_quotas.core.model.value_format import parse_bytes, parse_quota_value

DEFAULT_TOPIC: Final = "kafka-quotas-load-test"
FILL_BYTES: Final = 16_000_000
"""Bytes for consumers in a cluster of the run: the embedded one keeps 5 MB in each of 4 partitions."""
_PARTITIONS: Final = 4
_RECORDS_S: Final = 60.0  # is how long records are measured where verdicts don't take longer,
_FLOOD_S: Final = 30.0  # and a flood
_FLOODED_RECORD: Final = 100  # bytes of the record in a flood of Produce requests
_TOPICS_TO_CHANGE: Final = 100
_DEFAULT_CLIENT: Final = "/load-test"
_OWN_TOPIC: Final = "flood"
_CLIENTS: Final = "Clients"
_T = TypeVar("_T")


def _setting(spelling: str, name: str, record: type[Any] = loadtest.ScenarioClient, **more: Any) -> Any:
    about, default = loadtest.setting_of(record, name)
    return option(spelling, help=f"{about[:1].upper()}{about[1:]}.", **{"default": default, **more})


@option_group("Load")
class _LoadOptions:
    target: Annotated[TargetOptions, Without("command_config", "journal_dir")]
    entity: list[str] | None = option(
        "--entity [USER]/CLIENT-ID",
        rich_help_panel=_CLIENTS,
        help="A client of the run; may be repeated. Without it there is one, /load-test.",
    )
    rate: list[str] | None = option(
        "--rate RATE",
        rich_help_panel=_CLIENTS,
        help="What a client offers: max (the default), 5MB/s, 200rec/s, 200req/s, 50conn/s or 2x-quota; once for all "
        "clients, or once for each in the order of --entity.",
    )
    set_quota: list[str] | None = option(
        "--set-quota VALUE",
        help="Set this quota on the clients for the time of the run, judge by it, and put back what was there before: "
        "2MB/s (records), 200 (requests: % of a thread), 5 (partitions/s), 20 (connections/s, of 127.0.0.1); once for "
        "all or once for each. Without it the run is judged by the quotas in force.",
    )
    terms: Annotated[RunTerms, Without("scale", "brokers", "share", "start_at_ms", "experiment_s")]
    output: Annotated[ResultOutput, Without("plot", "junit", "repeat")]

    def names(self) -> tuple[loadtest.ClientName, ...]:
        """Return the clients, in the order of `--entity`."""
        return tuple(map(loadtest.parse_entity_name, self.entity or (_DEFAULT_CLIENT,)))

    def scenario(self, does: loadtest.Workload, what: loadtest.ScenarioClient, **more: Any) -> loadtest.Scenario:
        """Return the scenario of clients that do the same, based on `what`."""
        names = self.names()
        rates = _one_for_each(tuple(map(loadtest.parse_offered_rate, self.rate or ())), len(names), option="--rate")
        entities = tuple(
            replace(what, user=name.user, client_id=name.client_id, rate=rate)
            for name, rate in zip(names, rates or (loadtest.AS_FAST_AS_POSSIBLE,) * len(names), strict=True)
        )
        usual = {"name": does.value, "duration_s": _FLOOD_S, "quotas": self.quotas(loadtest.KEY_OF[does])}
        return loadtest.Scenario(**{**usual, "entities": entities, "security": _security(self.target), **more})

    def quotas(self, key: QuotaKey) -> tuple[loadtest.ScenarioQuota, ...]:
        """Return the quotas of `--set-quota`: of each client, or for connections of the address of all."""
        values = [_quota(key, text, "--set-quota") for text in self.set_quota or ()]
        entities = [
            Entity.of(user=ABSENT if name.user is None else name.user, client_id=name.client_id)
            for name in self.names()
        ]
        if key is CONNECTION_CREATION_RATE:
            entities = [Entity.of(ip=loadtest.LOCAL_ADDRESS)]
        spread = _one_for_each(values, len(entities), option="--set-quota")
        return tuple(
            loadtest.ScenarioQuota(entity=entity, values=((key.name, value),))
            for entity, value in zip(entities, spread, strict=bool(spread))
        )

    def run(self, scenario: loadtest.Scenario, windows: LoadWindowOptions, **more: Any) -> int:
        """Run a scenario and return its exit code. `more` is for the request."""
        target = more.pop("target", None) or self.target.load_target()
        order = RunRequest(
            scenario=scenario,
            target=replace(target, window=scenario.window),
            journal_folder=self.target.change.journal_folder,
            terms=replace(self.terms, scale=1.0),
            **more,
        )
        order = with_window(order, windows, self.output, yes=self.target.change.yes)
        step = note_step if not order.is_typed else lambda _: None  # a load of records has one step only
        return run_and_keep(order, self.output, step=step)

    def check_target(self, *choices: str) -> None:
        """Check that something to put under load was named."""
        if not self.target.cluster.names_cluster():
            known = ("--bootstrap-server HOST:PORT", "--broker-jars DIR", *choices)
            raise UsageError("say what to put under load", hint=", ".join(known))


@option_group("Records")
class _RecordOptions:
    topic: str = option("--topic NAME", default=DEFAULT_TOPIC, help="The topic, which must exist on a cluster.")
    client: loadtest.ClientKind = _setting("--client", "client")
    record_size: str = _setting("--record-size SIZE", "record_size", default="1KiB")
    quota: list[str] | None = option(
        "--quota RATE",
        help="The quota to judge by, per broker: 2MB/s or unlimited; once for all or once for each. Without it the "
        "quotas come from --store, KAFKA_QUOTAS_STORE or the context in use.",
    )
    control: str | None = option(
        "--control [USER]/CLIENT-ID",
        help="The client, one of --entity, that the others must not harm. It runs alone first, and its p99 beside the "
        "others is held against that.",
    )
    read_back: bool = option(
        "--read-back/--no-read-back",
        default=True,
        help="Read what was produced back from the topic, and count what was lost or came twice.",
    )


def produce(*, load: _LoadOptions, records: _RecordOptions, windows: ClientWindow) -> int:
    """Produce records on a schedule and judge the rate that was achieved.

    On an existing cluster the topic must exist. --set-quota sets quotas for the time of the run.
    """
    return _run_records(loadtest.Workload.PRODUCE, records, load, windows)


def consume(
    *, records: Annotated[_RecordOptions, Without("read_back")], load: _LoadOptions, windows: ClientWindow
) -> int:
    """Consume a topic's records over and over and judge the rate that was achieved.

    --record-size says how large the topic's records are, for rates in bytes.
    """
    return _run_records(loadtest.Workload.CONSUME, replace(records, read_back=False), load, windows)


def _run_records(
    does: loadtest.Workload, records: _RecordOptions, load: _LoadOptions, windows: LoadWindowOptions
) -> int:
    load.check_target("or --embedded")
    window, cluster = windows.settings().client, load.target.cluster
    scenario = _records_scenario(does, records, load)
    scenario = replace(scenario, window=window, security=loadtest.Security.PLAINTEXT)
    choice = choose_store(store=load.target.store, command_config=None)
    target = replace(load.target, store=None).load_target()
    if choice.chosen:
        target = replace(target, store_url=choice.url.value, settings=choice.settings())
    judged = any(entity.judge_by is not None for entity in scenario.entities)
    if cluster.embedded and not cluster.through_daemon and judged:
        write("note: the embedded cluster keeps no quotas; --through-daemon puts our daemon in front of it", sys.stderr)
    return load.run(
        scenario,
        windows,
        target=target,
        is_typed=True,
        reads_quotas=choice.chosen or bool(scenario.quotas),
        checks_delivery=records.read_back,
    )


def _records_scenario(does: loadtest.Workload, records: _RecordOptions, load: _LoadOptions) -> loadtest.Scenario:
    size = int(parse_bytes(records.record_size))
    if not 1 <= size <= loadtest.MAX_RECORD_SIZE:
        raise UsageError(
            f"a record has 1 to {loadtest.MAX_RECORD_SIZE} bytes, not {size}", hint="example: --record-size 1KiB"
        )
    in_flight = 1 if does is loadtest.Workload.CONSUME else 5
    what = loadtest.ScenarioClient(
        client_id=None, does=does, topic=records.topic, client=records.client, record_size=size, in_flight=in_flight
    )
    fill = max(1, FILL_BYTES // size) if does is loadtest.Workload.CONSUME else 0
    topic = loadtest.ScenarioTopic(name=records.topic, partitions=_PARTITIONS, fill=fill, record_size=size)
    if load.target.cluster.bootstrap is not None:
        topic = loadtest.ScenarioTopic(name=records.topic, is_there=True)
    scenario = load.scenario(
        does, what, title=f"{does.value} from the command line", duration_s=_RECORDS_S, topics=(topic,)
    )
    labels = [name.label for name in load.names()]
    control = None if records.control is None else records.control.removeprefix("/")
    if control is not None and control not in labels:
        raise UsageError(f"--control {records.control} is not one of the clients", hint=f"they are {', '.join(labels)}")
    # produced and consumed bytes have the same unit and range
    judged = [_quota(PRODUCER_BYTE_RATE, text, "--quota") for text in records.quota or ()]
    judged = [math.inf if quota >= PRODUCER_BYTE_RATE.unlimited else quota for quota in judged]
    quotas = _one_for_each(judged, len(labels), option="--quota")
    named = zip(scenario.entities, labels, quotas or [None] * len(labels), strict=True)
    entities = tuple(replace(each, judge_by=quota, control=label == control) for each, label, quota in named)
    return replace(scenario, entities=entities)


Apis = Annotated[
    list[str],
    option_info(
        "--api API",
        help=f"What to ask: {', '.join(loadtest.FLOOD_APIS)}; once for all clients, or once for each in the order of "
        "--entity.",
        autocompletion=lambda incomplete: [
            name for name in loadtest.FLOOD_APIS if name.lower().startswith(incomplete.lower())
        ],
    ),
]


FloodTopic = Annotated[
    str | None,
    option_info(
        "--topic NAME",
        help="The topic that requests are about, which must exist. Without it a topic is made for those that need one, "
        "and removed at the end.",
    ),
]


def requests(*, api: Apis, load: _LoadOptions, topic: FloodTopic = None, windows: ClientWindow) -> int:
    """Flood a cluster with requests of one kind per client, and report what got through or was throttled.

    Fetches start after the last record, so that they find nothing. Produce requests carry one record.
    """
    load.check_target()
    names = {name.lower(): name for name in loadtest.FLOOD_APIS}
    for each in api:
        if each.lower() not in names:
            raise UsageError(f"no flood of {each} requests is known", hint=f"one of {', '.join(loadtest.FLOOD_APIS)}")
    floods = [loadtest.RequestFlood(api=names[each.lower()]) for each in api]
    topics: tuple[loadtest.ScenarioTopic, ...] = ()
    if topic is not None:
        topics = (loadtest.ScenarioTopic(name=topic, is_there=True),)
    elif any(flood.api in loadtest.NEEDS_TOPIC for flood in floods):
        topics = (loadtest.ScenarioTopic(name=_OWN_TOPIC),)
    used = topics[0].name if topics else ""
    what = _raw(loadtest.Workload.REQUESTS, topic=used, record_size=_FLOODED_RECORD, request=floods[0])
    title = f"a flood of {' and '.join(dict.fromkeys(api))} requests"
    window = windows.settings().client
    scenario = load.scenario(loadtest.Workload.REQUESTS, what, title=title, topics=topics, window=window)
    spread = _one_for_each(floods, len(scenario.entities), option="--api")
    entities = tuple(replace(each, request=flood) for each, flood in zip(scenario.entities, spread, strict=True))
    return load.run(replace(scenario, entities=entities), windows)


@option_group("Topics")
class _MutationOptions:
    kind: loadtest.MutationKind = option(
        "--kind",
        default=loadtest.MutationKind.CREATE,
        help="What each request does to its topics. Those to be deleted or grown are made before the load.",
    )
    topics: int | None = option(
        "--topics N",
        min=1,
        help="How many topics in all, for each client; creating ends with them. Default: as many as the time allows "
        "(create), 100 (delete, partitions).",
    )
    partitions: int = option(
        "--partitions N",
        default=1,
        min=1,
        help="Partitions of each topic (create, delete), or by how many it grows each time (partitions).",
    )


def mutate(
    *,
    load: Annotated[_LoadOptions, Without("embedded")],
    mutations: _MutationOptions,
    windows: Annotated[LoadWindowOptions, ONLY_CONTROLLER],
) -> int:
    """Flood a cluster with changes of topics, and judge how many partitions per second it took.

    Topics carry a prefix of the run and are all removed at the end. A topic that a quota refuses is retried after
    the throttle time, until the API timeout is over.
    """
    load.check_target()
    total = mutations.topics
    if total is None and mutations.kind is not loadtest.MutationKind.CREATE:
        total = _TOPICS_TO_CHANGE
    flood = loadtest.MutationFlood(
        kind=mutations.kind,
        partitions_per_topic=mutations.partitions,
        total_topics=total,
    )
    window = windows.settings().controller
    scenario = load.scenario(
        loadtest.Workload.MUTATE,
        _raw(loadtest.Workload.MUTATE, mutation=flood),
        title=f"a flood of requests to {flood.kind.value}",
        needs=loadtest.TargetNeed.REAL_BROKER,
        window=window,
        broker_settings=(
            ("controller.quota.window.num", str(window.samples)),
            ("controller.quota.window.size.seconds", str(window.window_s)),
        ),
    )
    return load.run(scenario, windows)


def connect(*, load: _LoadOptions, windows: ClientWindow) -> int:
    """Open and close connections, with one request each, and judge how many a second the brokers took.

    A connection that was answered counts. One that is closed without an answer was turned away by the quota of its
    address; one whose answer took 100 ms or more was delayed. With a quota both count as throttled, by how long they
    took; without one a closed connection is a failure.
    """
    load.check_target()
    window = windows.settings().client
    scenario = load.scenario(
        loadtest.Workload.CONNECT, _raw(loadtest.Workload.CONNECT), title="a storm of connections", window=window
    )
    return load.run(scenario, windows)


def _raw(does: loadtest.Workload, **more: Any) -> loadtest.ScenarioClient:
    return loadtest.ScenarioClient(client_id=None, does=does, client=loadtest.ClientKind.RAW, **more)


def _security(target: TargetOptions) -> loadtest.Security:
    pairs = [pair.replace(" ", "").upper() for pair in target.credentials.properties or ()]
    if any(pair.startswith("SECURITY.PROTOCOL=SASL") for pair in pairs) or target.credentials.passwords is not None:
        return loadtest.Security.SASL_PLAIN
    return loadtest.Security.TLS if "SECURITY.PROTOCOL=SSL" in pairs else loadtest.Security.PLAINTEXT


def _quota(key: QuotaKey, text: str, spelling: str) -> float:
    value = parse_quota_value(key, text)
    if value <= 0:
        of_bytes = (loadtest.KEY_OF[each] for each in (loadtest.Workload.PRODUCE, loadtest.Workload.CONSUME))
        hint = "examples: 2MB/s, unlimited" if key in of_bytes else None
        raise UsageError(f"{spelling} must be above 0, not {text!r}", hint=hint)
    return value


def _one_for_each(values: Sequence[_T], count: int, *, option: str) -> tuple[_T, ...]:
    """Return one value per entity, or nothing without values."""
    if len(values) == 1:
        return tuple(values) * count
    if values and len(values) != count:
        raise UsageError(
            f"{option} is given {len(values)} times for {count} entities",
            hint=f"give {option} once for all, or once per --entity in the same order",
        )
    return tuple(values)
