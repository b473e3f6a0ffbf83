"""`kafka-quotas load-test connect`: storms of connections, and what a connection quota makes of them."""

from typing import Annotated

import typer

from kafka_quotas.cli.load_test import flood_options, options, target_options
from kafka_quotas.cli.load_test.flood_options import address_quota
from kafka_quotas.cli.load_test.result_output import ResultOutput
from kafka_quotas.cli.options.stores import CommandConfig, OutputForm
from kafka_quotas.cli.options.windows import QuotaWindowNum, QuotaWindowSize, WindowFile
from kafka_quotas.cli.output.view import Output
from kafka_quotas.loadtest.plan.workload import Arrival, Loop, Workload
from kafka_quotas.loadtest.scenario.model import Scenario, ScenarioClient

ConnectionQuota = Annotated[
    str | None,
    typer.Option(
        "--set-quota",
        metavar="RATE",
        help="Set this connection_creation_rate on 127.0.0.1, where clients on the broker's machine come from, for the "
        "time of the run: 20. Without it the quota in force is what is judged by.",
        rich_help_panel=options.RESULT_PANEL,
    ),
]


def connect(
    *,
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
    entity: options.EntityNames = None,
    rate: flood_options.FloodRate = None,
    arrival: flood_options.ArrivalOption = Arrival.CONSTANT,
    burst_size: flood_options.BurstSize = 1,
    loop: flood_options.LoopOption = Loop.OPEN,
    in_flight: flood_options.InFlight = 5,
    duration: options.Duration = "30s",
    warmup: options.Warmup = None,
    set_quota: ConnectionQuota = None,
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
    """Open connections, ask each one question, close it; and judge how many per second the brokers took.

    A connection that was answered counts. One that is closed without an answer was turned away by the quota of its
    address; one whose answer took 100 ms or more was delayed. With a quota both count as throttled, by how long they
    took; without one a closed connection is a failure.
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
    )
    window = flood_options.WindowOptions(
        num=quota_window_num, size_s=quota_window_size_seconds, file=window_file, of_brokers=broker_windows
    )
    scenario = Scenario(
        name="connect",
        title="a storm of connections",
        entities=clients.spelled_out(ScenarioClient(client_id=None, does=Workload.CONNECT)),
        duration_s=0.0,
        window=window.chosen(target, mutations=False),
        quotas=address_quota(set_quota),
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
    return flooding.run(scenario, asks="sets the connection quota of 127.0.0.1" if scenario.quotas else None)
