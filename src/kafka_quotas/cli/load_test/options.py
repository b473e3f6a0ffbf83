"""The options of load tests about clients, their load, and what is judged."""

import re
from dataclasses import replace
from typing import Annotated

import typer

from kafka_quotas.cli.framework.option_groups import option, option_group
from kafka_quotas.commands.load_test.typed_scenario import one_for_each
from kafka_quotas.core.clock import parse_instant
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.units import parse_bytes, parse_duration_ms
from kafka_quotas.loadtest.plan.plan import MAX_RECORD_SIZE, WHOLE, ClientName, LoadShare, parse_entity_name
from kafka_quotas.loadtest.plan.workload import (
    AS_FAST_AS_POSSIBLE,
    NO_LOAD,
    Arrival,
    ClientKind,
    Loop,
    parse_offered_rate,
    parse_stage,
)
from kafka_quotas.loadtest.scenario.model import ScenarioClient
from kafka_quotas.loadtest.verdict.thresholds import Expectation, parse_abort, parse_expectation

_DEFAULT_CLIENT = "/load-test"

RecordSize = Annotated[str, typer.Option("--record-size", metavar="SIZE", help="Bytes in a record: 100, 1KiB.")]
Brokers = Annotated[
    int | None,
    typer.Option(
        "--brokers",
        metavar="N",
        min=1,
        help="How many brokers keep the quota, each for itself. Default: those that lead the topic.",
    ),
]
Expect = Annotated[
    list[str] | None,
    typer.Option(
        "--expect",
        metavar="THRESHOLD",
        help="A threshold of your own that has to be met: 'throttle.count > 0', 'response.p99 < 50ms'; may be "
        "repeated.",
    ),
]
AbortOn = Annotated[
    list[str] | None,
    typer.Option(
        "--abort-on",
        metavar="THRESHOLD",
        help="A threshold that ends the run as soon as it is broken, such as 'response.p99 < 500ms' or 'records.failed "
        "== 0': the exit code is 1, and what was measured until then is kept. May be repeated.",
    ),
]
ControlFactor = Annotated[
    float | None,
    typer.Option(
        "--control-factor",
        metavar="N",
        min=1.0,
        help="How many times its p99 alone a control client's p99 may be beside the others. Default: what the scenario "
        "says, else 3.",
    ),
]
Prometheus = Annotated[
    list[str] | None,
    typer.Option(
        "--prometheus",
        metavar="URL",
        help="Read the brokers' own metrics beside the run, every 5 s: an exporter of a broker (with a path, as "
        "http://BROKER:7071/metrics) or a Prometheus server (without one). May be repeated.",
    ),
]
HonorThrottle = Annotated[
    str,
    typer.Option(
        "--honor-throttle",
        metavar="yes|no",
        help="yes: a client that gets a throttle time sends nothing until it is over, as Kafka's own clients do. "
        "no: it continues, until the broker no longer reads.",
    ),
]


@option_group("Clients")
class ClientOptions:
    """The options about the clients of a run, and the load that each of them is."""

    entity: list[str] | None = option(
        "--entity [USER]/CLIENT-ID", help="A client of the run; may be repeated. Without it there is one, /load-test."
    )
    rate: list[str] | None = option(
        "--rate RATE",
        help="What a client offers: max (the default), 5MB/s, 200rec/s or 2x-quota; once for all clients, or once for "
        "each in the order of --entity.",
    )
    stage: list[str] | None = option(
        "--stage TIME:RATE",
        help="Change the rate of every client evenly to this one within this time, as 30s:5MB/s; may be repeated. "
        "The stages begin with --rate, or 0, once the warm-up is over, and the last rate remains. 0s:RATE jumps.",
    )
    client: ClientKind = option(
        "--client",
        default=ClientKind.LIBRDKAFKA,
        help="The client library: librdkafka continues to send when throttled, raw does what --honor-throttle says "
        "and costs least, so that a run can have 1,000.",
    )
    honor_throttle: HonorThrottle = "yes"
    arrival: Arrival = option(
        "--arrival",
        default=Arrival.CONSTANT,
        help="How arrivals are spread over time: evenly, at random, or --burst-size at once with pauses between.",
    )
    burst_size: int = option(
        "--burst-size N", default=1, min=1, help="How many records or requests arrive at once with --arrival burst."
    )
    loop: Loop = option(
        "--loop",
        default=Loop.OPEN,
        help="open: arrivals come when they are due, whatever the target does. closed: the next waits for an answer.",
    )
    in_flight: int = option(
        "--in-flight N",
        default=5,
        min=1,
        help="How many requests may wait for an answer on a connection (connect: how many connections are begun at "
        "once where the rate is max).",
    )
    connections: int = option("--connections N", default=1, min=1, help="How many connections each client keeps.")

    def spelled_out(self, what: ScenarioClient) -> tuple[ScenarioClient, ...]:
        """Return the load of each client in the order of `--entity`, based on `what`."""
        names = self.names()
        stages = tuple(map(parse_stage, self.stage or ()))
        rates = tuple(map(parse_offered_rate, self.rate or ())) or (NO_LOAD if stages else AS_FAST_AS_POSSIBLE,)
        if self.honor_throttle not in ("yes", "no"):
            raise UsageError(f"--honor-throttle is yes or no, not {self.honor_throttle!r}")
        return tuple(
            replace(
                what,
                user=name.user,
                client_id=name.client_id,
                rate=rate,
                stages=stages,
                arrival=self.arrival,
                burst_size=self.burst_size,
                loop=self.loop,
                in_flight=self.in_flight,
                connections=self.connections,
                honor_throttle=self.honor_throttle == "yes",
                client=self.client,
            )
            for name, rate in zip(names, one_for_each(rates, len(names), option="--rate"), strict=True)
        )

    def names(self) -> tuple[ClientName, ...]:
        """Return the clients, in the order of `--entity`."""
        return tuple(map(parse_entity_name, self.entity or (_DEFAULT_CLIENT,)))


Duration = Annotated[
    str | None,
    typer.Option(
        "--duration",
        metavar="TIME",
        help="How long to measure: 60s, 2min. Default: as long as verdicts take, which is five quota windows, "
        "and no less than the scenario or command does without quotas.",
    ),
]


@option_group("Duration")
class LengthOptions:
    """The options about how long a run takes."""

    duration: Duration = None
    warmup: str | None = option("--warmup TIME", help="How long before that, not judged. Default: one quota window.")

    @property
    def duration_s(self) -> float | None:
        """The measured time, None for as long as it takes."""
        return None if self.duration is None else seconds(self.duration)

    @property
    def warmup_s(self) -> float | None:
        """The time before it, None for one quota window."""
        return None if self.warmup is None else seconds(self.warmup)


def seconds(text: str) -> float:
    """Parse a duration such as `60s` or `2min` into seconds.

    Raises:
        UsageError: The text is no duration.
    """
    return float(parse_duration_ms(text) / 1000)


def record_bytes(text: str, *, example: str) -> int:
    """Parse the size of a record.

    Raises:
        UsageError: The text is no size, or no record has it.
    """
    size = int(parse_bytes(text))
    if not 1 <= size <= MAX_RECORD_SIZE:
        raise UsageError(
            f"a record has 1 to {MAX_RECORD_SIZE} bytes, not {size}", hint=f"example: --record-size {example}"
        )
    return size


def expectations(texts: list[str] | None) -> tuple[Expectation, ...]:
    """Parse the thresholds of `--expect`.

    Raises:
        UsageError: A text is no threshold.
    """
    return tuple(map(parse_expectation, texts or ()))


def aborts(texts: list[str] | None) -> tuple[Expectation, ...]:
    """Parse the thresholds of `--abort-on`.

    Raises:
        UsageError: A text is no threshold, or is none that can end a run.
    """
    return tuple(map(parse_abort, texts or ()))


@option_group("Shards")
class ShardOptions:
    """The options about a load that several processes share."""

    shard: str | None = option(
        "--shard NUMBER/COUNT",
        help="Put this share of every client's load on the target, as 2/4: every fourth arrival, from the second on. "
        "Shards have the same options and start together, and 'load-test merge' joins what they wrote with --out.",
    )
    start_at: str | None = option(
        "--start-at TIME", help="When the load begins, as 2026-11-22T19:30:00Z, late enough for all to be ready."
    )

    @property
    def share(self) -> LoadShare:
        """The share of the load, the whole of it without the option."""
        if self.shard is None:
            return WHOLE
        match = re.fullmatch(r"(\d{1,4})/(\d{1,4})", self.shard, re.ASCII)
        if match is None:
            raise UsageError(f"not a shard: {self.shard!r}", hint="write NUMBER/COUNT, such as 2/4")
        return LoadShare(number=int(match[1]), count=int(match[2]))

    @property
    def start_at_ms(self) -> int | None:
        """The start of the load, None for as soon as all is ready."""
        try:
            return None if self.start_at is None else parse_instant(self.start_at)
        except ValueError as error:
            raise UsageError(f"not a time: {self.start_at!r}", hint="write it as 2026-11-22T19:30:00Z") from error
