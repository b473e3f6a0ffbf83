"""`kafka-quotas load-test produce` and `consume`: records on a cluster, and the verdict whether quotas hold."""

import sys
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path

import typer

from kafka_quotas.cli import load_options as options
from kafka_quotas.cli.load_keeping import Keeping
from kafka_quotas.cli.load_live import live_watcher
from kafka_quotas.cli.options import CommandConfig, OutputForm
from kafka_quotas.cli.output import Output
from kafka_quotas.cli.render import write
from kafka_quotas.cli.store_choice import choose_store
from kafka_quotas.cli.window_options import QuotaWindowNum, QuotaWindowSize, WindowFile, chosen_windows
from kafka_quotas.commands.load_test import DEFAULT_TOPIC, LoadRequest, is_unlimited, load_test, shortest_s
from kafka_quotas.core.duration import parse_duration_ms
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.quota_config import QuotaWindow
from kafka_quotas.core.quota_key import PRODUCER_BYTE_RATE
from kafka_quotas.core.units import parse_bytes, parse_quota_value
from kafka_quotas.loadtest.cycles import Direction
from kafka_quotas.loadtest.offered_rate import parse_offered_rate
from kafka_quotas.loadtest.plan import parse_entity_name
from kafka_quotas.stores.property_file import read_properties
from kafka_quotas.system_clock import SystemClock

DEFAULT_ENTITY = "/load-test"
_INTERRUPTED = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class _Windows:
    """The options about the quota window, as they were typed."""

    num: int | None
    size_s: int | None
    file: Path | None
    of_brokers: bool
    command_config: Path | None

    def chosen(self, bootstrap: str | None) -> QuotaWindow:
        """The window that counts; `bootstrap` is what is put under load, None the embedded cluster."""
        if self.of_brokers and bootstrap is None:
            raise UsageError(
                "--broker-windows needs brokers to ask, which the embedded cluster has not",
                hint="leave it out, or name a cluster with --bootstrap-server",
            )
        return chosen_windows(
            quota_window_num=self.num,
            quota_window_size_seconds=self.size_s,
            window_file=self.file,
            bootstrap_server=bootstrap if self.of_brokers else None,
            command_config=self.command_config if self.of_brokers else None,
        ).client


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """The options of both commands, as they were typed."""

    bootstrap_server: str | None
    embedded: bool
    topic: str
    entities: list[str] | None
    rates: list[str] | None
    quotas: list[str] | None
    duration: str
    warmup: str | None
    record_size: str
    acks: str
    brokers: int | None
    properties: list[str] | None
    property_file: Path | None
    passwords: Path | None
    windows: "_Windows"


def produce(
    *,
    bootstrap_server: options.Target = None,
    embedded: options.Embedded = False,
    topic: options.Topic = DEFAULT_TOPIC,
    properties: options.Property = None,
    config: options.PropertyFile = None,
    passwords: options.Passwords = None,
    entity: options.EntityNames = None,
    rate: options.Rates = None,
    duration: options.Duration = "60s",
    warmup: options.Warmup = None,
    record_size: options.RecordSize = "1KiB",
    acks: options.Acks = "all",
    quota: options.Quotas = None,
    brokers: options.Brokers = None,
    store: options.QuotaStore = None,
    command_config: CommandConfig = None,
    quota_window_num: QuotaWindowNum = None,
    quota_window_size_seconds: QuotaWindowSize = None,
    window_file: WindowFile = None,
    broker_windows: options.BrokerWindows = False,
    output: OutputForm = Output.TABLE,
    plot: options.Plot = None,
    out: options.Out = None,
) -> None:
    """Produce records on an open-loop schedule and judge the rate that was achieved."""
    given = _Given(
        bootstrap_server=bootstrap_server,
        embedded=embedded,
        topic=topic,
        entities=entity,
        rates=rate,
        quotas=quota,
        duration=duration,
        warmup=warmup,
        record_size=record_size,
        acks=acks,
        brokers=brokers,
        properties=properties,
        property_file=config,
        passwords=passwords,
        windows=_Windows(
            num=quota_window_num,
            size_s=quota_window_size_seconds,
            file=window_file,
            of_brokers=broker_windows,
            command_config=command_config,
        ),
    )
    _run(
        _request(Direction.PRODUCE, given),
        Keeping(output=output, plot=plot, folder=out),
        store=store,
        command_config=command_config,
    )


def consume(
    *,
    bootstrap_server: options.Target = None,
    embedded: options.Embedded = False,
    topic: options.Topic = DEFAULT_TOPIC,
    properties: options.Property = None,
    config: options.PropertyFile = None,
    passwords: options.Passwords = None,
    entity: options.EntityNames = None,
    rate: options.Rates = None,
    duration: options.Duration = "60s",
    warmup: options.Warmup = None,
    record_size: options.RecordSize = "1KiB",
    quota: options.Quotas = None,
    brokers: options.Brokers = None,
    store: options.QuotaStore = None,
    command_config: CommandConfig = None,
    quota_window_num: QuotaWindowNum = None,
    quota_window_size_seconds: QuotaWindowSize = None,
    window_file: WindowFile = None,
    broker_windows: options.BrokerWindows = False,
    output: OutputForm = Output.TABLE,
    plot: options.Plot = None,
    out: options.Out = None,
) -> None:
    """Consume a topic's records over and over and judge the rate that was achieved.

    --record-size says how large the topic's records are, for rates in bytes.
    """
    given = _Given(
        bootstrap_server=bootstrap_server,
        embedded=embedded,
        topic=topic,
        entities=entity,
        rates=rate,
        quotas=quota,
        duration=duration,
        warmup=warmup,
        record_size=record_size,
        acks="all",
        brokers=brokers,
        properties=properties,
        property_file=config,
        passwords=passwords,
        windows=_Windows(
            num=quota_window_num,
            size_s=quota_window_size_seconds,
            file=window_file,
            of_brokers=broker_windows,
            command_config=command_config,
        ),
    )
    _run(
        _request(Direction.CONSUME, given),
        Keeping(output=output, plot=plot, folder=out),
        store=store,
        command_config=command_config,
    )


def _request(direction: Direction, given: _Given) -> LoadRequest:
    """The request that the options mean; everything is parsed here, once."""
    if (given.bootstrap_server is None) != given.embedded:
        raise UsageError("say what to put under load", hint="--bootstrap-server HOST:PORT, or --embedded, and not both")
    if given.acks not in ("0", "1", "all", "-1"):
        raise UsageError(f"--acks is 0, 1 or all, not {given.acks!r}", hint="all: every replica in sync; 0: nobody")
    return LoadRequest(
        direction=direction,
        bootstrap=given.bootstrap_server,
        topic=given.topic,
        entities=tuple(parse_entity_name(text) for text in given.entities or [DEFAULT_ENTITY]),
        rates=tuple(parse_offered_rate(text) for text in given.rates or []),
        quotas=tuple(_quota(text) for text in given.quotas or []),
        duration_s=_seconds(given.duration),
        warmup_s=None if given.warmup is None else _seconds(given.warmup),
        window=given.windows.chosen(given.bootstrap_server),
        record_size=int(parse_bytes(given.record_size)),
        acks=given.acks,
        enforcers=given.brokers,
        properties=_properties(given.properties or [], given.property_file),
        passwords=read_properties(given.passwords) if given.passwords else {},
    )


def _seconds(text: str) -> float:
    return float(parse_duration_ms(text) / 1000)


def _quota(text: str) -> float | None:
    """The quota in bytes/s, None for unlimited."""
    value = parse_quota_value(PRODUCER_BYTE_RATE, text)  # the same unit and range as consumer_byte_rate
    if value <= 0:
        raise UsageError(f"--quota must be above 0, not {text!r}", hint="examples: 2MB/s, unlimited")
    return None if is_unlimited(PRODUCER_BYTE_RATE, value) else value


def _properties(pairs: list[str], file: Path | None) -> dict[str, str]:
    properties = read_properties(file) if file else {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"not a property: {pair!r}", hint="write -X KEY=VALUE")
        properties[key.strip()] = value.strip()
    return properties


def _run(request: LoadRequest, keeping: Keeping, *, store: str | None, command_config: Path | None) -> None:
    """Nothing; ends with exit code 1 where a verdict is not met, with 130 after an interrupt."""
    keeping.check()
    if request.bootstrap is None and any(quota is not None for quota in request.quotas):
        write(
            "note: the embedded cluster keeps no quotas; put the daemon in front of one, as the demo does", sys.stderr
        )
    least_s, tight_s = shortest_s(request)
    if request.duration_s <= least_s and any(quota is not None for quota in request.quotas):
        write(
            f"note: {request.duration_s:g} s are too short to judge a client that is held back; "
            f"it takes more than {least_s:g} s, and about {tight_s:g} s for the tight bounds",
            sys.stderr,
        )
    choice = choose_store(store=store, command_config=command_config)
    opened = closing(choice.open()) if choice.chosen else nullcontext()
    with opened as quotas, live_watcher(f"load-test {request.direction.value}") as watcher:
        result = load_test(request, clock=SystemClock(), store=quotas, watcher=watcher)
    keeping.keep(result)
    if result.interrupted:
        raise typer.Exit(_INTERRUPTED)
    if not result.ok:
        raise typer.Exit(1)
