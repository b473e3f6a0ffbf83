"""The options of `load-test requests`, `mutate` and `connect`, and how they become a scenario.

A flood is a scenario that is typed instead of written down: all that holds for `load-test run` holds for it. The quotas
of `--set-quota` last as long as its run.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from kafka_quotas.cli.load_test import options
from kafka_quotas.cli.load_test.result_output import ResultOutput
from kafka_quotas.cli.load_test.run import carried_out, tell
from kafka_quotas.cli.load_test.target_options import TargetOptions
from kafka_quotas.cli.options.windows import chosen_windows
from kafka_quotas.cli.output.render import is_terminal
from kafka_quotas.commands.load_test.order import RunRequest
from kafka_quotas.commands.load_test.typed_scenario import client_quotas, one_for_each
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_key import CONNECTION_CREATION_RATE, QuotaKey
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.model.time_format import parse_duration_ms
from kafka_quotas.core.model.units import parse_quota_value
from kafka_quotas.loadtest.judge.expectation import parse_expectation
from kafka_quotas.loadtest.plan.offered_rate import AS_FAST_AS_POSSIBLE, OfferedRate, parse_offered_rate
from kafka_quotas.loadtest.plan.plan import ClientName, parse_entity_name
from kafka_quotas.loadtest.plan.workload import Arrival, ClientKind, Loop
from kafka_quotas.loadtest.run.journal import default_journal_folder
from kafka_quotas.loadtest.run.quotas_in_force import LOCAL_ADDRESS
from kafka_quotas.loadtest.scenario.model import Scenario, ScenarioClient, ScenarioQuota, Security

_DEFAULT_ENTITY = "/load-test"

ArrivalOption = Annotated[
    Arrival,
    typer.Option(
        "--arrival",
        help="How arrivals are spread over time: evenly, at random, or --burst-size at once with pauses between.",
        rich_help_panel=options.LOAD_PANEL,
    ),
]
BurstSize = Annotated[
    int,
    typer.Option(
        "--burst-size",
        metavar="N",
        min=1,
        help="How many arrive at once with --arrival burst.",
        rich_help_panel=options.LOAD_PANEL,
    ),
]
LoopOption = Annotated[
    Loop,
    typer.Option(
        "--loop",
        help="open: arrivals come when they are due, whatever the target does. closed: the next waits for an answer.",
        rich_help_panel=options.LOAD_PANEL,
    ),
]
InFlight = Annotated[
    int,
    typer.Option(
        "--in-flight",
        metavar="N",
        min=1,
        help="How many requests may wait for an answer on a connection (connect: how many connections are begun at "
        "once where the rate is max).",
        rich_help_panel=options.LOAD_PANEL,
    ),
]
Connections = Annotated[
    int,
    typer.Option(
        "--connections",
        metavar="N",
        min=1,
        help="How many connections each client keeps.",
        rich_help_panel=options.LOAD_PANEL,
    ),
]
HonorThrottle = Annotated[
    str,
    typer.Option(
        "--honor-throttle",
        metavar="yes|no",
        help="yes: a client that was told a throttle time sends nothing until it is over, as Kafka's own clients do. "
        "no: it goes on, and only the broker's silence stops it.",
        rich_help_panel=options.LOAD_PANEL,
    ),
]
FloodRate = Annotated[
    list[str] | None,
    typer.Option(
        "--rate",
        metavar="RATE",
        help="What a client offers: max (the default), 200req/s, 50conn/s or 2x-quota; once for all clients, or once "
        "for each in the order of --entity.",
        rich_help_panel=options.LOAD_PANEL,
    ),
]
Expect = Annotated[
    list[str] | None,
    typer.Option(
        "--expect",
        metavar="THRESHOLD",
        help="A threshold of your own that has to be met: 'throttle.count > 0', 'response.p99 < 50ms'; may be "
        "repeated.",
        rich_help_panel=options.RESULT_PANEL,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowOptions:
    """The options about the quota window, as they were typed."""

    num: int | None
    size_s: int | None
    file: Path | None
    of_brokers: bool

    def chosen(self, target: TargetOptions, *, mutations: bool) -> QuotaWindow:
        """Return the window in force, either of mutation quotas or of all others."""
        windows = chosen_windows(
            quota_window_num=None if mutations else self.num,
            quota_window_size_seconds=None if mutations else self.size_s,
            controller_window_num=self.num if mutations else None,
            controller_window_size_seconds=self.size_s if mutations else None,
            window_file=self.file,
            bootstrap_server=target.bootstrap_server if self.of_brokers else None,
            command_config=target.command_config if self.of_brokers else None,
        )
        return windows.controller if mutations else windows.client


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientsOptions:
    """The options about the clients of a flood, as they were typed."""

    entities: list[str] | None
    rates: list[str] | None
    arrival: Arrival
    burst_size: int
    loop: Loop
    in_flight: int
    connections: int = 1
    honor_throttle: str = "yes"
    client: ClientKind = ClientKind.RAW

    def spelled_out(self, what: ScenarioClient) -> tuple[ScenarioClient, ...]:
        """Return the load of each client in the order of `--entity`, based on `what`."""
        names, rates = self.names(), self._rates()
        if self.honor_throttle not in ("yes", "no"):
            raise UsageError(f"--honor-throttle is yes or no, not {self.honor_throttle!r}")
        return tuple(
            replace(
                what,
                user=name.user,
                client_id=name.client_id,
                rate=rate,
                arrival=self.arrival,
                burst_size=self.burst_size,
                loop=self.loop,
                in_flight=self.in_flight,
                connections=self.connections,
                honor_throttle=self.honor_throttle == "yes",
                client=self.client,
            )
            for name, rate in zip(names, rates, strict=True)
        )

    def names(self) -> tuple[ClientName, ...]:
        """Return the clients, in the order of `--entity`."""
        return tuple(parse_entity_name(text) for text in self.entities or [_DEFAULT_ENTITY])

    def _rates(self) -> tuple[OfferedRate, ...]:
        rates = tuple(parse_offered_rate(text) for text in self.rates or []) or (AS_FAST_AS_POSSIBLE,)
        return one_for_each(rates, len(self.names()), option="--rate")


@dataclass(frozen=True, slots=True, kw_only=True)
class Flooding:
    """A flood to run: its target, its duration, its verdicts and its output."""

    target: TargetOptions
    duration: str
    warmup: str | None
    brokers: int | None
    expect: list[str] | None
    prometheus: list[str] | None
    journal_dir: Path | None
    yes: bool
    keeping: ResultOutput

    def run(self, scenario: Scenario, *, asks: str | None) -> int:
        """Run a flood and return its exit code.

        `asks` is what the flood changes on an existing cluster, None for nothing.

        Raises:
            UsageError: No target was named.
            typer.Abort: The user does not confirm the change.
        """
        if not self.target.named():
            raise UsageError("say what to put under load", hint="--bootstrap-server HOST:PORT, --broker-jars DIR")
        warmup_s = None if self.warmup is None else seconds(self.warmup)
        scenario = replace(scenario, duration_s=seconds(self.duration), warmup_s=warmup_s, security=self._security())
        through_daemon = self.target.through_daemon
        order = RunRequest(
            scenario=scenario,
            target=self.target.target(window=scenario.window, enforcers=self.brokers, through_daemon=through_daemon),
            journal_folder=self.journal_dir or default_journal_folder(),
            scale=1.0,
            expectations=tuple(parse_expectation(text) for text in self.expect or []),
            prometheus=tuple(self.prometheus or ()),
        )
        self.keeping.check()
        if asks is not None and order.target.is_theirs and not self.yes:
            _ask(f"this {asks} on {order.target.bootstrap}, and puts everything back at the end.")
        return carried_out(order, self.keeping, step=tell)

    def _security(self) -> Security:
        """Return how clients authenticate, as far as checks need it."""
        given = [pair.replace(" ", "").upper() for pair in self.target.properties or []]
        if any(pair.startswith("SECURITY.PROTOCOL=SASL") for pair in given) or self.target.passwords is not None:
            return Security.SASL_PLAIN
        return Security.TLS if "SECURITY.PROTOCOL=SSL" in given else Security.PLAINTEXT


def seconds(text: str) -> float:
    """Parse a duration such as `60s` or `2min` into seconds.

    Raises:
        UsageError: The text is no duration.
    """
    return float(parse_duration_ms(text) / 1000)


def _ask(what: str) -> None:
    if not is_terminal(sys.stdin):
        raise UsageError(what.removesuffix("."), hint="--yes agrees to that")
    typer.confirm(f"{what} Go on?", abort=True, err=True)


def typed_quotas(names: Sequence[ClientName], key: QuotaKey, texts: list[str] | None) -> tuple[ScenarioQuota, ...]:
    """Return a quota of this key for each client, from one text for all or one for each.

    Without texts there are no quotas.
    """
    return client_quotas(names, key, [_value(key, text) for text in texts or []])


def address_quota(text: str | None) -> tuple[ScenarioQuota, ...]:
    """Return the quota of the clients' source address, none without a text."""
    if text is None:
        return ()
    key = CONNECTION_CREATION_RATE
    return (ScenarioQuota(entity=Entity.of(ip=LOCAL_ADDRESS), values=((key.name, _value(key, text)),)),)


def _value(key: QuotaKey, text: str) -> float:
    value = parse_quota_value(key, text)
    if value <= 0:
        raise UsageError(f"--set-quota must be above 0, not {text!r}")
    return value
