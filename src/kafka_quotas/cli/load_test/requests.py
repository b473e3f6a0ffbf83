"""`kafka-quotas load-test requests`: floods of chosen requests, and what a request quota makes of them."""

from dataclasses import replace
from typing import Annotated, Final

import typer

from kafka_quotas.cli.load_test import flood_options, options, target_options
from kafka_quotas.cli.load_test.flood_options import typed_quotas
from kafka_quotas.cli.load_test.result_output import ResultOutput
from kafka_quotas.cli.options.stores import CommandConfig, OutputForm
from kafka_quotas.cli.options.windows import QuotaWindowNum, QuotaWindowSize, WindowFile
from kafka_quotas.cli.output.view import Output
from kafka_quotas.commands.load_test.typed_scenario import one_for_each
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.quota_key import REQUEST_PERCENTAGE
from kafka_quotas.core.model.units import parse_bytes
from kafka_quotas.loadtest.clients.raw.request_flood import FLOOD_APIS, NEEDS_TOPIC
from kafka_quotas.loadtest.plan.plan import MAX_RECORD_SIZE
from kafka_quotas.loadtest.plan.workload import Arrival, Loop, RequestFlood, Workload
from kafka_quotas.loadtest.scenario.model import Scenario, ScenarioClient, ScenarioTopic

_OWN_TOPIC: Final = "flood"

Apis = Annotated[
    list[str],
    typer.Option(
        "--api",
        metavar="API",
        help=f"What to ask: {', '.join(FLOOD_APIS)}; once for all clients, or once for each in the order of --entity.",
        rich_help_panel=options.LOAD_PANEL,
        autocompletion=lambda incomplete: [name for name in FLOOD_APIS if name.lower().startswith(incomplete.lower())],
    ),
]
FloodTopic = Annotated[
    str | None,
    typer.Option(
        "--topic",
        metavar="NAME",
        help="The topic that requests are about, which must exist. Without it a topic is made for those that need one, "
        "and removed at the end.",
        rich_help_panel=options.TARGET_PANEL,
    ),
]
Unauthorised = Annotated[
    bool,
    typer.Option(
        "--unauthorised",
        help="The clients may not touch --topic, and being refused is what is expected.",
        rich_help_panel=options.LOAD_PANEL,
    ),
]
MaxWait = Annotated[
    int,
    typer.Option(
        "--max-wait-ms",
        metavar="MS",
        min=0,
        help="How long a Fetch may be kept waiting for records; 0 asks again at once (fetch.max.wait.ms).",
        rich_help_panel=options.LOAD_PANEL,
    ),
]
MinBytes = Annotated[
    int,
    typer.Option(
        "--min-bytes",
        metavar="BYTES",
        min=0,
        help="For how many bytes a Fetch waits (fetch.min.bytes).",
        rich_help_panel=options.LOAD_PANEL,
    ),
]
RequestQuota = Annotated[
    list[str] | None,
    typer.Option(
        "--set-quota",
        metavar="PERCENT",
        help="Set this request_percentage on the clients for the time of the run: 1, 200; once for all or once for "
        "each. What a client gets by it can't be told from outside, so --expect says what is wanted.",
        rich_help_panel=options.RESULT_PANEL,
    ),
]


def requests(
    *,
    api: Apis,
    bootstrap_server: options.Target = None,
    embedded: options.Embedded = False,
    broker_jars: target_options.BrokerJars = None,
    through_daemon: target_options.ThroughDaemon = False,
    store: target_options.QuotaPlace = None,
    command_config: CommandConfig = None,
    properties: options.Property = None,
    config: options.PropertyFile = None,
    passwords: options.Passwords = None,
    yes: target_options.Yes = False,
    journal_dir: target_options.JournalFolder = None,
    topic: FloodTopic = None,
    unauthorised: Unauthorised = False,
    entity: options.EntityNames = None,
    rate: flood_options.FloodRate = None,
    arrival: flood_options.ArrivalOption = Arrival.CONSTANT,
    burst_size: flood_options.BurstSize = 1,
    loop: flood_options.LoopOption = Loop.OPEN,
    in_flight: flood_options.InFlight = 5,
    connections: flood_options.Connections = 1,
    honor_throttle: flood_options.HonorThrottle = "yes",
    max_wait_ms: MaxWait = 0,
    min_bytes: MinBytes = 1,
    record_size: options.RecordSize = "100",
    duration: options.Duration = "30s",
    warmup: options.Warmup = None,
    set_quota: RequestQuota = None,
    brokers: options.Brokers = None,
    expect: flood_options.Expect = None,
    prometheus: options.Prometheus = None,
    quota_window_num: QuotaWindowNum = None,
    quota_window_size_seconds: QuotaWindowSize = None,
    window_file: WindowFile = None,
    broker_windows: options.BrokerWindows = False,
    output: OutputForm = Output.TABLE,
    plot: options.Plot = None,
    out: options.Out = None,
) -> int:
    """Flood a cluster with requests of one kind per client, and tell how many got through and were throttled.

    Fetches start behind the last record, so that they find nothing. Produce requests bring one record.
    """
    target = target_options.TargetOptions(
        bootstrap_server=bootstrap_server,
        embedded=embedded,
        broker_jars=broker_jars,
        through_daemon=through_daemon,
        store=store,
        command_config=command_config,
        properties=properties,
        property_file=config,
        passwords=passwords,
    )
    clients = flood_options.ClientsOptions(
        entities=entity,
        rates=rate,
        arrival=arrival,
        burst_size=burst_size,
        loop=loop,
        in_flight=in_flight,
        connections=connections,
        honor_throttle=honor_throttle,
    )
    window = flood_options.WindowOptions(
        num=quota_window_num, size_s=quota_window_size_seconds, file=window_file, of_brokers=broker_windows
    )
    floods = _floods(
        api,
        RequestFlood(api=api[0], max_wait_ms=max_wait_ms, min_bytes=min_bytes, unauthorised=unauthorised),
        count=len(clients.names()),
    )
    topics = _topics(floods, topic)
    size = int(parse_bytes(record_size))
    if not 1 <= size <= MAX_RECORD_SIZE:
        raise UsageError(f"a record has 1 to {MAX_RECORD_SIZE} bytes, not {size}", hint="example: --record-size 100")
    what = ScenarioClient(
        client_id=None,
        does=Workload.REQUESTS,
        topic=topics[0].name if topics else "",
        record_size=size,
        flood=floods[0],
    )
    scenario = Scenario(
        name="requests",
        title=f"a flood of {' and '.join(dict.fromkeys(api))} requests",
        entities=tuple(
            replace(each, flood=flood) for each, flood in zip(clients.spelled_out(what), floods, strict=True)
        ),
        duration_s=0.0,
        window=window.chosen(target, mutations=False),
        topics=topics,
        quotas=typed_quotas(clients.names(), REQUEST_PERCENTAGE, set_quota),
    )
    flooding = flood_options.Flooding(
        target=target,
        duration=duration,
        warmup=warmup,
        brokers=brokers,
        expect=expect,
        prometheus=prometheus,
        journal_dir=journal_dir,
        yes=yes,
        keeping=ResultOutput(output=output, plots=plot or (), folder=out),
    )
    return flooding.run(scenario, asks=_asks(scenario))


def _floods(apis: list[str], flood: RequestFlood, *, count: int) -> tuple[RequestFlood, ...]:
    """Return the flood of each client."""
    names = {name.lower(): name for name in FLOOD_APIS}
    for api in apis:
        if api.lower() not in names:
            raise UsageError(f"no flood of {api} requests is known", hint=f"one of {', '.join(FLOOD_APIS)}")
    return one_for_each([replace(flood, api=names[api.lower()]) for api in apis], count, option="--api")


def _topics(floods: tuple[RequestFlood, ...], topic: str | None) -> tuple[ScenarioTopic, ...]:
    """Return the topic of the requests, if any, either an existing one or one to create for them.

    Raises:
        UsageError: The flood is to be unauthorised and no topic is named.
    """
    if topic is not None:
        return (ScenarioTopic(name=topic, is_there=True),)
    if any(flood.unauthorised for flood in floods):
        raise UsageError("--unauthorised needs a topic that the clients may not touch", hint="name it with --topic")
    return (ScenarioTopic(name=_OWN_TOPIC),) if any(flood.api in NEEDS_TOPIC for flood in floods) else ()


def _asks(scenario: Scenario) -> str | None:
    """Return what the flood changes on a cluster, None for nothing."""
    makes = "makes a topic" if scenario.makes_topics else ""
    sets = f"sets {len(scenario.quotas)} quotas" if scenario.quotas else ""
    return " and ".join(filter(None, (makes, sets))) or None
