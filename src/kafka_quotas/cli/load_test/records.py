"""`kafka-quotas load-test produce` and `consume`: records on a cluster, and the verdict whether quotas hold."""

import sys
from dataclasses import replace
from typing import Annotated

from kafka_quotas.cli.completion.values import complete_stores
from kafka_quotas.cli.framework.option_groups import Without, option, option_group
from kafka_quotas.cli.framework.store_choice import StoreChoice, choose_store, confirm
from kafka_quotas.cli.load_test.options import (
    AbortOn,
    Brokers,
    ClientOptions,
    ControlFactor,
    Expect,
    LengthOptions,
    Prometheus,
    RecordSize,
    ShardOptions,
    aborts,
    expectations,
    record_bytes,
)
from kafka_quotas.cli.load_test.result_output import ResultOutput
from kafka_quotas.cli.load_test.run import run_and_keep, with_window
from kafka_quotas.cli.load_test.target_options import (
    ChangeOptions,
    ClusterOptions,
    CredentialOptions,
    LoadWindowOptions,
    TargetOptions,
)
from kafka_quotas.cli.options.stores import CommandConfig
from kafka_quotas.cli.options.windows import ONLY_CLIENTS
from kafka_quotas.cli.output.render import write
from kafka_quotas.commands.load_test.request import RunRequest
from kafka_quotas.commands.load_test.target import LoadTarget
from kafka_quotas.commands.load_test.typed_scenario import (
    DEFAULT_TOPIC,
    LoadRequest,
    is_unlimited,
    load_scenario,
)
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.quota_key import PRODUCER_BYTE_RATE
from kafka_quotas.core.model.units import parse_bytes, parse_quota_value
from kafka_quotas.core.model.value_format import format_count
from kafka_quotas.loadtest.plan.workload import Workload
from kafka_quotas.loadtest.scenario.model import Scenario, ScenarioClient

_RECORDS_S = 60.0  # is how long records are measured where verdicts don't take longer
_COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


@option_group("Target")
class RecordTargetOptions:
    """The options about the target of records."""

    cluster: ClusterOptions
    topic: str = option("--topic NAME", default=DEFAULT_TOPIC, help="The topic, which must exist.")
    credentials: CredentialOptions
    set_quota: list[str] | None = option(
        "--set-quota RATE",
        help="Set this quota on the clients for the time of the run, judge by it, and put back what was there before: "
        "2MB/s; once for all or once for each. A client without a user has it by its client-id.",
    )
    change: ChangeOptions


@option_group("Records")
class RecordOptions:
    """The options about the records that clients move."""

    record_size: RecordSize = "1KiB"
    batch: str | None = option(
        "--batch SIZE",
        help="Bytes in one request at most: 16KiB, 1MB. Default: a tenth of a second's quota, 16 KiB to 1 MB.",
    )
    compression: str = option(
        "--compression none|gzip|snappy|lz4|zstd",
        default="none",
        help="How batches are compressed. A quota counts what goes over the wire.",
    )
    acks: str = option("--acks 0|1|all", default="all", help="Which replicas confirm a record.")

    def moved(self, does: Workload) -> ScenarioClient:
        """Return an unnamed client that moves these records.

        Raises:
            UsageError: An option has no value that a client takes.
        """
        if self.acks not in ("0", "1", "all", "-1"):
            raise UsageError(f"--acks is 0, 1 or all, not {self.acks!r}", hint="all: every replica in sync; 0: nobody")
        if self.compression not in _COMPRESSIONS:
            raise UsageError(f"no such compression: {self.compression!r}", hint=f"one of {', '.join(_COMPRESSIONS)}")
        return ScenarioClient(
            client_id=None,
            does=does,
            record_size=record_bytes(self.record_size, example="1KiB"),
            batch_bytes=None if self.batch is None else int(parse_bytes(self.batch)),
            compression=self.compression,
            acks=self.acks,
        )


@option_group("Verdict")
class RecordVerdictOptions:
    """The options about what is judged where records move."""

    quota: list[str] | None = option(
        "--quota RATE",
        help="The quota to judge by, per broker: 2MB/s or unlimited; once for all or once for each. Without it the "
        "quotas come from --store, where that is given.",
    )
    brokers: Brokers = None
    expect: Expect = None
    abort_on: AbortOn = None
    shards: ShardOptions
    control: str | None = option(
        "--control [USER]/CLIENT-ID",
        help="The client, one of --entity, that the others must not harm. It runs alone first, and its p99 beside the "
        "others is held against that.",
    )
    control_factor: ControlFactor = None
    prometheus: Prometheus = None
    read_back: bool = option(
        "--read-back/--no-read-back",
        default=True,
        help="Read what was produced back from the topic, and count what was lost or came twice.",
    )
    store: str | None = option(
        "--store URL",
        help="Take the quotas to judge by from this store, as they resolve for each client. Without it from the one "
        "that the variable KAFKA_QUOTAS_STORE or the context in use names; where there is none, --quota alone counts.",
        autocompletion=complete_stores,
    )
    command_config: CommandConfig = None


@option_group("Load")
class LoadOptions:
    """The options of `produce` and `consume`."""

    target: RecordTargetOptions
    clients: ClientOptions
    length: LengthOptions
    records: RecordOptions
    verdict: RecordVerdictOptions
    windows: Annotated[LoadWindowOptions, ONLY_CLIENTS]
    output: ResultOutput

    @property
    def run_target(self) -> TargetOptions:
        """The options about the target, as other load tests have them."""
        return TargetOptions(
            cluster=self.target.cluster,
            store=None,
            command_config=self.verdict.command_config,
            credentials=self.target.credentials,
            change=self.target.change,
        )


def produce(*, asked: LoadOptions) -> int:
    """Produce records on a schedule and judge the rate that was achieved.

    On an existing cluster the topic must exist. --set-quota sets quotas for the time of the run.
    """
    return _run(Workload.PRODUCE, asked)


def consume(*, asked: Annotated[LoadOptions, Without("loop", "in_flight", "compression", "acks", "read_back")]) -> int:
    """Consume a topic's records over and over and judge the rate that was achieved.

    --record-size says how large the topic's records are, for rates in bytes.
    """
    clients, verdict = replace(asked.clients, in_flight=1), replace(asked.verdict, read_back=False)
    return _run(Workload.CONSUME, replace(asked, clients=clients, verdict=verdict))


def _run(does: Workload, asked: LoadOptions) -> int:
    """Run the load test and return its exit code.

    Returns:
        1 where a verdict is not met, 130 after an interrupt.
    """
    if not asked.target.cluster.is_named():
        raise UsageError(
            "say what to put under load", hint="--bootstrap-server HOST:PORT, --broker-jars DIR, or --embedded"
        )
    scenario = load_scenario(_request(does, asked))
    verdict = asked.verdict
    choice = choose_store(store=verdict.store, command_config=verdict.command_config)
    order = RunRequest(
        scenario=scenario,
        target=_target(asked, scenario, choice),
        journal_folder=asked.target.change.journal_folder,
        scale=1.0,
        duration_s=asked.length.duration_s,
        expectations=expectations(verdict.expect),
        aborts=aborts(verdict.abort_on),
        share=verdict.shards.share,
        start_at_ms=verdict.shards.start_at_ms,
        control_factor=verdict.control_factor,
        prometheus=tuple(verdict.prometheus or ()),
        is_typed=True,
        keeps_names=True,
        reads_quotas=choice.chosen or bool(scenario.quotas),
        checks_delivery=verdict.read_back,
    )
    asked.output.check()
    _note_limits(order)
    _ask_first(order, yes=asked.target.change.yes)
    return run_and_keep(with_window(order, asked.windows), asked.output, step=lambda _: None)  # there is one step only


def _request(does: Workload, asked: LoadOptions) -> LoadRequest:
    clients = asked.clients.spelled_out(asked.records.moved(does))
    return LoadRequest(
        what=clients[0],
        entities=asked.clients.names(),
        duration_s=_RECORDS_S,
        topic=asked.target.topic,
        topic_is_there=asked.target.cluster.bootstrap_server is not None,
        rates=tuple(client.rate for client in clients),
        quotas=tuple(_quota(text, spelling="--quota") for text in asked.verdict.quota or ()),
        set_quotas=tuple(_quota_to_set(text) for text in asked.target.set_quota or ()),
        control=asked.verdict.control,
        warmup_s=asked.length.warmup_s,
        window=asked.windows.settings().client,
    )


def _target(asked: LoadOptions, scenario: Scenario, choice: StoreChoice) -> LoadTarget:
    """Return the target, with the store of its quotas where one was chosen."""
    target = asked.run_target.load_target(window=scenario.window, enforcers=asked.verdict.brokers)
    return replace(target, store_url=choice.url.value, settings=choice.settings()) if choice.chosen else target


def _quota(text: str, *, spelling: str) -> float | None:
    """Parse a quota in bytes/s, None for unlimited."""
    value = parse_quota_value(PRODUCER_BYTE_RATE, text)  # the same unit and range as consumer_byte_rate
    if value <= 0:
        raise UsageError(f"{spelling} must be above 0, not {text!r}", hint="examples: 2MB/s, unlimited")
    return None if is_unlimited(PRODUCER_BYTE_RATE, value) else value


def _quota_to_set(text: str) -> float:
    value = _quota(text, spelling="--set-quota")
    return float(PRODUCER_BYTE_RATE.unlimited) if value is None else value


def _note_limits(order: RunRequest) -> None:
    """Report on standard error what the run can't judge and which quotas nobody enforces."""
    scenario, target = order.scenario, order.target
    judged = any(entity.judge_by is not None for entity in scenario.entities)
    is_embedded = target.bootstrap is None and target.broker_jars is None
    if is_embedded and not target.through_daemon and judged:
        write("note: the embedded cluster keeps no quotas; --through-daemon puts our daemon in front of it", sys.stderr)


def _ask_first(order: RunRequest, *, yes: bool) -> None:
    if yes or not order.target.is_theirs or not order.scenario.quotas or order.target.through_daemon:
        return
    quotas = format_count(len(order.scenario.quotas), "quota")
    what = f"this sets {quotas} in {order.target.bootstrap}, and puts back what was there at the end"
    confirm(what)
