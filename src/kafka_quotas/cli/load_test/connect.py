"""`kafka-quotas load-test connect`: storms of connections, and what a connection quota makes of them."""

from typing import Annotated

import typer

from kafka_quotas.cli.load_test.flood import FLOOD_S, FloodVerdictOptions, OneConnection, quota_to_set, run_flood
from kafka_quotas.cli.load_test.options import LengthOptions
from kafka_quotas.cli.load_test.result_output import ResultOutput
from kafka_quotas.cli.load_test.target_options import LoadWindowOptions, TargetOptions
from kafka_quotas.cli.options.windows import ONLY_CLIENTS
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_key import CONNECTION_CREATION_RATE
from kafka_quotas.loadtest.plan.workload import Workload
from kafka_quotas.loadtest.run.quotas import LOCAL_ADDRESS
from kafka_quotas.loadtest.scenario.model import Scenario, ScenarioClient, ScenarioQuota

ConnectionQuota = Annotated[
    str | None,
    typer.Option(
        "--set-quota",
        metavar="RATE",
        help="Set this connection_creation_rate on 127.0.0.1, where clients on the broker's machine come from, for the "
        "time of the run: 20. Without it the run is judged by the quota in force.",
    ),
]


def connect(
    *,
    target: TargetOptions,
    clients: OneConnection,
    length: LengthOptions,
    set_quota: ConnectionQuota = None,
    verdict: FloodVerdictOptions,
    windows: Annotated[LoadWindowOptions, ONLY_CLIENTS],
    output: ResultOutput,
) -> int:
    """Open and close connections, with one request each, and judge how many a second the brokers took.

    A connection that was answered counts. One that is closed without an answer was turned away by the quota of its
    address; one whose answer took 100 ms or more was delayed. With a quota both count as throttled, by how long they
    took; without one a closed connection is a failure.
    """
    scenario = Scenario(
        name="connect",
        title="a storm of connections",
        entities=clients.spelled_out(ScenarioClient(client_id=None, does=Workload.CONNECT)),
        duration_s=FLOOD_S,
        window=windows.settings().client,
        quotas=() if set_quota is None else (_address_quota(set_quota),),
    )
    change = "sets the connection quota of 127.0.0.1" if scenario.quotas else None
    return run_flood(scenario, target, length, verdict, output, windows=windows, change=change)


def _address_quota(text: str) -> ScenarioQuota:
    value = quota_to_set(CONNECTION_CREATION_RATE, text)
    return ScenarioQuota(entity=Entity.of(ip=LOCAL_ADDRESS), values=((CONNECTION_CREATION_RATE.name, value),))
