"""`kafka-quotas load-test mutate`: floods of topics made, removed or grown, as KIP-599's admin client sends them."""

from typing import Annotated, Final

import typer

from kafka_quotas.cli.load_test import flood_options, options, target_options
from kafka_quotas.cli.load_test.flood_options import typed_quotas
from kafka_quotas.cli.load_test.result_output import ResultOutput
from kafka_quotas.cli.options.stores import CommandConfig, OutputForm
from kafka_quotas.cli.options.windows import ControllerWindowNum, ControllerWindowSize, WindowFile
from kafka_quotas.cli.output.view import Output
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.quota_key import CONTROLLER_MUTATION_RATE
from kafka_quotas.loadtest.plan.workload import Arrival, ClientKind, Loop, MutationFlood, MutationKind, Workload
from kafka_quotas.loadtest.scenario.model import Scenario, ScenarioClient, TargetNeed

Kind = Annotated[
    MutationKind,
    typer.Option(
        "--kind",
        help="What each request does to its topics. Those to be deleted or grown are made before the load.",
        rich_help_panel=options.LOAD_PANEL,
    ),
]
Topics = Annotated[
    int | None,
    typer.Option(
        "--topics",
        metavar="N",
        min=1,
        help="How many topics in all, for each client; creating ends with them. Default: as many as the time allows "
        "(create), 100 (delete, partitions).",
        rich_help_panel=options.LOAD_PANEL,
    ),
]
TopicsPerRequest = Annotated[
    int,
    typer.Option(
        "--topics-per-request", metavar="N", min=1, help="Topics in one request.", rich_help_panel=options.LOAD_PANEL
    ),
]
Partitions = Annotated[
    int,
    typer.Option(
        "--partitions",
        metavar="N",
        min=1,
        help="Partitions of each topic (create, delete), or by how many it grows each time (partitions).",
        rich_help_panel=options.LOAD_PANEL,
    ),
]
Replication = Annotated[
    int,
    typer.Option(
        "--replication-factor", metavar="N", min=1, help="Replicas of new topics.", rich_help_panel=options.LOAD_PANEL
    ),
]
ApiTimeout = Annotated[
    str,
    typer.Option(
        "--api-timeout",
        metavar="TIME",
        help="How long a client asks again for topics that a quota refuses (error 89); after it they, and only they, "
        "have failed with it (default.api.timeout.ms).",
        rich_help_panel=options.LOAD_PANEL,
    ),
]
NoRetry = Annotated[
    bool,
    typer.Option(
        "--no-retry-quota-violation",
        help="Take error 89 for an answer and don't ask again.",
        rich_help_panel=options.LOAD_PANEL,
    ),
]
ValidateOnly = Annotated[
    bool,
    typer.Option(
        "--validate-only",
        help="Ask whether it could be done, and do nothing. A broker charges for that too.",
        rich_help_panel=options.LOAD_PANEL,
    ),
]
Client = Annotated[
    ClientKind,
    typer.Option(
        "--client",
        help="raw, or kafka-python. librdkafka never sees error 89: it speaks an older version of these requests.",
        rich_help_panel=options.LOAD_PANEL,
    ),
]
MutationQuota = Annotated[
    list[str] | None,
    typer.Option(
        "--set-quota",
        metavar="RATE",
        help="Set this controller_mutation_rate (partitions/s) on the clients for the time of the run: 5; once for all "
        "or once for each. Without it the quotas in force are what is judged by.",
        rich_help_panel=options.RESULT_PANEL,
    ),
]
_TOPICS_TO_CHANGE: Final = 100
_CLIENTS: Final = (ClientKind.RAW, ClientKind.KAFKA_PYTHON)


def mutate(
    *,
    bootstrap_server: options.Target = None,
    broker_jars: target_options.BrokerJars = None,
    through_daemon: target_options.ThroughDaemon = False,
    store: target_options.QuotaPlace = None,
    command_config: CommandConfig = None,
    properties: options.Property = None,
    config: options.PropertyFile = None,
    passwords: options.Passwords = None,
    yes: target_options.Yes = False,
    journal_dir: target_options.JournalFolder = None,
    kind: Kind = MutationKind.CREATE,
    topics: Topics = None,
    topics_per_request: TopicsPerRequest = 1,
    partitions: Partitions = 1,
    replication_factor: Replication = 1,
    api_timeout: ApiTimeout = "60s",
    no_retry_quota_violation: NoRetry = False,
    validate_only: ValidateOnly = False,
    client: Client = ClientKind.RAW,
    entity: options.EntityNames = None,
    rate: flood_options.FloodRate = None,
    arrival: flood_options.ArrivalOption = Arrival.CONSTANT,
    burst_size: flood_options.BurstSize = 1,
    loop: flood_options.LoopOption = Loop.OPEN,
    in_flight: flood_options.InFlight = 5,
    honor_throttle: flood_options.HonorThrottle = "yes",
    duration: options.Duration = "30s",
    warmup: options.Warmup = None,
    set_quota: MutationQuota = None,
    brokers: options.Brokers = None,
    expect: flood_options.Expect = None,
    prometheus: options.Prometheus = None,
    controller_quota_window_num: ControllerWindowNum = None,
    controller_quota_window_size_seconds: ControllerWindowSize = None,
    window_file: WindowFile = None,
    broker_windows: options.BrokerWindows = False,
    output: OutputForm = Output.TABLE,
    plot: options.Plot = None,
    out: options.Out = None,
) -> int:
    """Flood a cluster with changes of topics, and judge how many partitions per second it took.

    Topics carry a prefix of the run and are all removed at the end. A topic that a quota refuses is asked for again
    after the throttle time, until the API timeout is over.
    """
    target = target_options.TargetOptions(
        bootstrap_server=bootstrap_server,
        embedded=False,
        broker_jars=broker_jars,
        through_daemon=through_daemon,
        store=store,
        command_config=command_config,
        properties=properties,
        property_file=config,
        passwords=passwords,
    )
    if client not in _CLIENTS:
        raise UsageError(f"{client.value} can't flood a cluster with changes of topics", hint="raw or kafka-python")
    clients = flood_options.ClientsOptions(
        entities=entity,
        rates=rate,
        arrival=arrival,
        burst_size=burst_size,
        loop=loop,
        in_flight=in_flight,
        honor_throttle=honor_throttle,
        client=client,
    )
    window = flood_options.WindowOptions(
        num=controller_quota_window_num,
        size_s=controller_quota_window_size_seconds,
        file=window_file,
        of_brokers=broker_windows,
    ).chosen(target, mutations=True)
    flood = MutationFlood(
        kind=kind,
        topics_per_request=topics_per_request,
        partitions_per_topic=partitions,
        replication_factor=replication_factor,
        total_topics=topics if topics is not None or kind is MutationKind.CREATE else _TOPICS_TO_CHANGE,
        api_timeout_ms=round(flood_options.seconds(api_timeout) * 1000),
        retry_quota_violation=not no_retry_quota_violation,
        validate_only=validate_only,
    )
    scenario = Scenario(
        name="mutate",
        title=f"a flood of requests to {kind.value}",
        needs=TargetNeed.REAL_BROKER,
        entities=clients.spelled_out(ScenarioClient(client_id=None, does=Workload.MUTATE, flood=flood)),
        duration_s=0.0,
        window=window,
        quotas=typed_quotas(clients.names(), CONTROLLER_MUTATION_RATE, set_quota),
        broker_settings=(
            ("controller.quota.window.num", str(window.samples)),
            ("controller.quota.window.size.seconds", str(window.window_s)),
        ),
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
    return flooding.run(scenario, asks="floods the cluster with changes of topics")
