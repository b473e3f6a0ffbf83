"""`kafka-quotas load-test produce` and `consume`: records on a cluster, and the verdict whether quotas hold."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path

import typer

from kafka_quotas.cli.framework.store_choice import StoreChoice, choose_store
from kafka_quotas.cli.load_test import flood_options, options, target_options
from kafka_quotas.cli.load_test import options as record_options
from kafka_quotas.cli.load_test.result_output import ResultOutput
from kafka_quotas.cli.load_test.run import ControlFactor, carried_out
from kafka_quotas.cli.options.stores import CommandConfig, OutputForm
from kafka_quotas.cli.options.windows import QuotaWindowNum, QuotaWindowSize, WindowFile
from kafka_quotas.cli.output.render import is_terminal, write
from kafka_quotas.cli.output.view import Output
from kafka_quotas.commands.load_test.order import RunRequest
from kafka_quotas.commands.load_test.target import LoadTarget
from kafka_quotas.commands.load_test.typed_scenario import (
    DEFAULT_TOPIC,
    LoadRequest,
    is_unlimited,
    load_scenario,
    shortest_s,
)
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.quota_key import PRODUCER_BYTE_RATE
from kafka_quotas.core.model.units import parse_bytes, parse_quota_value
from kafka_quotas.loadtest.judge.expectation import parse_expectation
from kafka_quotas.loadtest.plan.plan import MAX_RECORD_SIZE
from kafka_quotas.loadtest.plan.workload import Arrival, ClientKind, Loop, Workload
from kafka_quotas.loadtest.run.journal import default_journal_folder
from kafka_quotas.loadtest.scenario.model import Scenario, ScenarioClient

_COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Records:
    """The options about the records, as they were typed."""

    topic: str
    size: str
    batch: str | None
    compression: str
    acks: str
    read_back: bool

    def moved(self, does: Workload) -> ScenarioClient:
        """Return an unnamed client that moves these records."""
        if self.acks not in ("0", "1", "all", "-1"):
            raise UsageError(f"--acks is 0, 1 or all, not {self.acks!r}", hint="all: every replica in sync; 0: nobody")
        if self.compression not in _COMPRESSIONS:
            raise UsageError(f"no such compression: {self.compression!r}", hint=f"one of {', '.join(_COMPRESSIONS)}")
        size = int(parse_bytes(self.size))
        if not 1 <= size <= MAX_RECORD_SIZE:
            raise UsageError(
                f"a record has 1 to {MAX_RECORD_SIZE} bytes, not {size}", hint="example: --record-size 1KiB"
            )
        return ScenarioClient(
            client_id=None,
            does=does,
            record_size=size,
            batch_bytes=None if self.batch is None else int(parse_bytes(self.batch)),
            compression=self.compression,
            acks=self.acks,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Quotas:
    """The options about quotas, as they were typed."""

    judge_by: list[str] | None
    to_set: list[str] | None
    store: str | None
    brokers: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verdict:
    """The options about what is judged beside the rates, as they were typed."""

    expect: list[str] | None
    control: str | None
    control_factor: float | None
    prometheus: list[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """The options of both commands, as they were typed."""

    target: target_options.TargetOptions
    clients: flood_options.ClientsOptions
    records: _Records
    quotas: _Quotas
    windows: flood_options.WindowOptions
    verdict: _Verdict
    duration: str
    warmup: str | None
    journal_dir: Path | None
    yes: bool


def produce(
    *,
    bootstrap_server: options.Target = None,
    embedded: options.Embedded = False,
    broker_jars: target_options.BrokerJars = None,
    through_daemon: target_options.ThroughDaemon = False,
    topic: options.Topic = DEFAULT_TOPIC,
    properties: options.Property = None,
    config: options.PropertyFile = None,
    passwords: options.Passwords = None,
    set_quota: record_options.SetQuota = None,
    yes: target_options.Yes = False,
    journal_dir: target_options.JournalFolder = None,
    entity: options.EntityNames = None,
    rate: options.Rates = None,
    client: record_options.ClientOption = ClientKind.LIBRDKAFKA,
    honor_throttle: flood_options.HonorThrottle = "yes",
    arrival: flood_options.ArrivalOption = Arrival.CONSTANT,
    burst_size: flood_options.BurstSize = 1,
    loop: flood_options.LoopOption = Loop.OPEN,
    in_flight: flood_options.InFlight = 5,
    connections: flood_options.Connections = 1,
    duration: options.Duration = "60s",
    warmup: options.Warmup = None,
    record_size: options.RecordSize = "1KiB",
    batch: record_options.Batch = None,
    compression: record_options.Compression = "none",
    acks: options.Acks = "all",
    quota: options.Quotas = None,
    brokers: options.Brokers = None,
    expect: flood_options.Expect = None,
    control: record_options.Control = None,
    control_factor: ControlFactor = None,
    prometheus: options.Prometheus = None,
    read_back: record_options.ReadBack = True,
    store: options.QuotaStore = None,
    command_config: CommandConfig = None,
    quota_window_num: QuotaWindowNum = None,
    quota_window_size_seconds: QuotaWindowSize = None,
    window_file: WindowFile = None,
    broker_windows: options.BrokerWindows = False,
    output: OutputForm = Output.TABLE,
    plot: options.Plot = None,
    out: options.Out = None,
) -> int:
    """Produce records on a schedule and judge the rate that was achieved.

    A topic of a cluster that is there must exist. --set-quota sets quotas for the time of the run.
    """
    given = _Given(
        target=target_options.TargetOptions(
            bootstrap_server=bootstrap_server,
            embedded=embedded,
            broker_jars=broker_jars,
            through_daemon=through_daemon,
            store=None,
            command_config=command_config,
            properties=properties,
            property_file=config,
            passwords=passwords,
        ),
        clients=flood_options.ClientsOptions(
            entities=entity,
            rates=rate,
            arrival=arrival,
            burst_size=burst_size,
            loop=loop,
            in_flight=in_flight,
            connections=connections,
            honor_throttle=honor_throttle,
            client=client,
        ),
        records=_Records(
            topic=topic, size=record_size, batch=batch, compression=compression, acks=acks, read_back=read_back
        ),
        quotas=_Quotas(judge_by=quota, to_set=set_quota, store=store, brokers=brokers),
        windows=flood_options.WindowOptions(
            num=quota_window_num, size_s=quota_window_size_seconds, file=window_file, of_brokers=broker_windows
        ),
        verdict=_Verdict(expect=expect, control=control, control_factor=control_factor, prometheus=prometheus),
        duration=duration,
        warmup=warmup,
        journal_dir=journal_dir,
        yes=yes,
    )
    return _run(Workload.PRODUCE, given, ResultOutput(output=output, plots=plot or (), folder=out))


def consume(
    *,
    bootstrap_server: options.Target = None,
    embedded: options.Embedded = False,
    broker_jars: target_options.BrokerJars = None,
    through_daemon: target_options.ThroughDaemon = False,
    topic: options.Topic = DEFAULT_TOPIC,
    properties: options.Property = None,
    config: options.PropertyFile = None,
    passwords: options.Passwords = None,
    set_quota: record_options.SetQuota = None,
    yes: target_options.Yes = False,
    journal_dir: target_options.JournalFolder = None,
    entity: options.EntityNames = None,
    rate: options.Rates = None,
    client: record_options.ClientOption = ClientKind.LIBRDKAFKA,
    honor_throttle: flood_options.HonorThrottle = "yes",
    arrival: flood_options.ArrivalOption = Arrival.CONSTANT,
    burst_size: flood_options.BurstSize = 1,
    connections: flood_options.Connections = 1,
    duration: options.Duration = "60s",
    warmup: options.Warmup = None,
    record_size: options.RecordSize = "1KiB",
    batch: record_options.Batch = None,
    quota: options.Quotas = None,
    brokers: options.Brokers = None,
    expect: flood_options.Expect = None,
    control: record_options.Control = None,
    control_factor: ControlFactor = None,
    prometheus: options.Prometheus = None,
    store: options.QuotaStore = None,
    command_config: CommandConfig = None,
    quota_window_num: QuotaWindowNum = None,
    quota_window_size_seconds: QuotaWindowSize = None,
    window_file: WindowFile = None,
    broker_windows: options.BrokerWindows = False,
    output: OutputForm = Output.TABLE,
    plot: options.Plot = None,
    out: options.Out = None,
) -> int:
    """Consume a topic's records over and over and judge the rate that was achieved.

    --record-size says how large the topic's records are, for rates in bytes.
    """
    given = _Given(
        target=target_options.TargetOptions(
            bootstrap_server=bootstrap_server,
            embedded=embedded,
            broker_jars=broker_jars,
            through_daemon=through_daemon,
            store=None,
            command_config=command_config,
            properties=properties,
            property_file=config,
            passwords=passwords,
        ),
        clients=flood_options.ClientsOptions(
            entities=entity,
            rates=rate,
            arrival=arrival,
            burst_size=burst_size,
            loop=Loop.OPEN,
            in_flight=1,
            connections=connections,
            honor_throttle=honor_throttle,
            client=client,
        ),
        records=_Records(topic=topic, size=record_size, batch=batch, compression="none", acks="all", read_back=False),
        quotas=_Quotas(judge_by=quota, to_set=set_quota, store=store, brokers=brokers),
        windows=flood_options.WindowOptions(
            num=quota_window_num, size_s=quota_window_size_seconds, file=window_file, of_brokers=broker_windows
        ),
        verdict=_Verdict(expect=expect, control=control, control_factor=control_factor, prometheus=prometheus),
        duration=duration,
        warmup=warmup,
        journal_dir=journal_dir,
        yes=yes,
    )
    return _run(Workload.CONSUME, given, ResultOutput(output=output, plots=plot or (), folder=out))


def _run(does: Workload, given: _Given, keeping: ResultOutput) -> int:
    """Run the load test and return its exit code.

    Returns:
        1 where a verdict is not met, 130 after an interrupt.
    """
    if not given.target.named():
        raise UsageError(
            "say what to put under load", hint="--bootstrap-server HOST:PORT, --broker-jars DIR, or --embedded"
        )
    if given.windows.of_brokers and given.target.bootstrap_server is None:
        raise UsageError(
            "--broker-windows needs brokers to ask, which the embedded cluster has not",
            hint="leave it out, or name a cluster with --bootstrap-server",
        )
    scenario = load_scenario(_request(does, given))
    choice = choose_store(store=given.quotas.store, command_config=given.target.command_config)
    order = RunRequest(
        scenario=scenario,
        target=_target(given, scenario, choice),
        journal_folder=given.journal_dir or default_journal_folder(),
        scale=1.0,
        expectations=tuple(parse_expectation(text) for text in given.verdict.expect or []),
        control_factor=given.verdict.control_factor,
        prometheus=tuple(given.verdict.prometheus or ()),
        is_typed=True,
        keeps_names=True,
        reads_quotas=choice.chosen or bool(scenario.quotas),
        checks_delivery=given.records.read_back,
    )
    keeping.check()
    _tell_limits(order)
    _ask_first(order, yes=given.yes)
    return carried_out(order, keeping, step=_keep_quiet)


def _request(does: Workload, given: _Given) -> LoadRequest:
    """Parse all options, once, into a request."""
    clients = given.clients.spelled_out(given.records.moved(does))
    return LoadRequest(
        what=clients[0],
        entities=given.clients.names(),
        duration_s=flood_options.seconds(given.duration),
        topic=given.records.topic,
        topic_is_there=given.target.bootstrap_server is not None,
        rates=tuple(client.rate for client in clients),
        quotas=tuple(_quota(text, option="--quota") for text in given.quotas.judge_by or []),
        set_quotas=tuple(_quota_to_set(text) for text in given.quotas.to_set or []),
        control=given.verdict.control,
        warmup_s=None if given.warmup is None else flood_options.seconds(given.warmup),
        window=given.windows.chosen(given.target, mutations=False),
    )


def _target(given: _Given, scenario: Scenario, choice: StoreChoice) -> LoadTarget:
    """Return the target, with the store of its quotas where one was chosen."""
    target = given.target.target(
        window=scenario.window, enforcers=given.quotas.brokers, through_daemon=given.target.through_daemon
    )
    return replace(target, store_url=choice.url.value, settings=choice.settings()) if choice.chosen else target


def _quota(text: str, *, option: str) -> float | None:
    """Parse a quota in bytes/s, None for unlimited."""
    value = parse_quota_value(PRODUCER_BYTE_RATE, text)  # the same unit and range as consumer_byte_rate
    if value <= 0:
        raise UsageError(f"{option} must be above 0, not {text!r}", hint="examples: 2MB/s, unlimited")
    return None if is_unlimited(PRODUCER_BYTE_RATE, value) else value


def _quota_to_set(text: str) -> float:
    """Parse a quota in bytes/s into the value that a store takes."""
    value = _quota(text, option="--set-quota")
    return float(PRODUCER_BYTE_RATE.unlimited) if value is None else value


def _tell_limits(order: RunRequest) -> None:
    """Report on standard error what the run can't judge and which quotas nobody enforces."""
    scenario, target = order.scenario, order.target
    judged = any(entity.judge_by is not None for entity in scenario.entities)
    is_embedded = target.bootstrap is None and target.broker_jars is None
    if is_embedded and not target.through_daemon and judged:
        write("note: the embedded cluster keeps no quotas; --through-daemon puts our daemon in front of it", sys.stderr)
    least_s, tight_s = shortest_s(scenario)
    if scenario.duration_s <= least_s and (judged or scenario.quotas):
        write(
            f"note: {scenario.duration_s:g} s are too short to judge a client that is held back; "
            f"it takes more than {least_s:g} s, and about {tight_s:g} s for the tight bounds",
            sys.stderr,
        )


def _ask_first(order: RunRequest, *, yes: bool) -> None:
    """Ask before quotas of a user's cluster change.

    Raises:
        UsageError: Nobody can be asked, because standard input is no terminal.
        typer.Abort: The user does not confirm the change.
    """
    if yes or not order.target.is_theirs or not order.scenario.quotas or order.target.through_daemon:
        return
    what = f"this sets {len(order.scenario.quotas)} quotas in {order.target.bootstrap}, and puts them back at the end"
    if not is_terminal(sys.stdin):
        raise UsageError(what, hint="--yes agrees to that")
    typer.confirm(f"{what}. Go on?", abort=True, err=True)


def _keep_quiet(_step: str) -> None:
    """Ignore the steps of a test that has one step only."""
