"""`kafka-quotas load-test mutate`: floods of topics made, removed or grown, as KIP-599's admin client sends them."""

from dataclasses import replace
from typing import Annotated, Final

import typer

from kafka_quotas.cli.framework.option_groups import Without, option, option_group
from kafka_quotas.cli.load_test.flood import FLOOD_S, FloodVerdictOptions, OneConnection, quotas_to_set, run_flood
from kafka_quotas.cli.load_test.options import HonorThrottle, LengthOptions, seconds
from kafka_quotas.cli.load_test.result_output import ResultOutput
from kafka_quotas.cli.load_test.target_options import LoadWindowOptions, TargetOptions
from kafka_quotas.cli.options.windows import ONLY_CONTROLLER
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.quota_key import CONTROLLER_MUTATION_RATE
from kafka_quotas.loadtest.plan.workload import ClientKind, MutationFlood, MutationKind, Workload
from kafka_quotas.loadtest.scenario.model import Scenario, ScenarioClient, TargetNeed

MutationQuota = Annotated[
    list[str] | None,
    typer.Option(
        "--set-quota",
        metavar="RATE",
        help="Set this controller_mutation_rate (partitions/s) on the clients for the time of the run: 5; once for all "
        "or once for each. Without it the run is judged by the quotas in force.",
    ),
]
_TOPICS_TO_CHANGE: Final = 100
_CLIENTS: Final = (ClientKind.RAW, ClientKind.KAFKA_PYTHON)


@option_group("Topics")
class MutationOptions:
    """The options about what the requests of a flood do to topics."""

    kind: MutationKind = option(
        "--kind",
        default=MutationKind.CREATE,
        help="What each request does to its topics. Those to be deleted or grown are made before the load.",
    )
    topics: int | None = option(
        "--topics N",
        min=1,
        help="How many topics in all, for each client; creating ends with them. Default: as many as the time allows "
        "(create), 100 (delete, partitions).",
    )
    topics_per_request: int = option("--topics-per-request N", default=1, min=1, help="Topics in one request.")
    partitions: int = option(
        "--partitions N",
        default=1,
        min=1,
        help="Partitions of each topic (create, delete), or by how many it grows each time (partitions).",
    )
    replication_factor: int = option("--replication-factor N", default=1, min=1, help="Replicas of new topics.")
    api_timeout: str = option(
        "--api-timeout TIME",
        default="60s",
        help="How long a client retries topics that a quota refuses (error 89); after that these topics, and only "
        "these, have failed (default.api.timeout.ms).",
    )
    no_retry_quota_violation: bool = option(
        "--no-retry-quota-violation", default=False, help="Accept error 89 as the answer and don't retry."
    )
    validate_only: bool = option(
        "--validate-only",
        default=False,
        help="Only validate the requests and change nothing. A broker charges for that too.",
    )
    client: ClientKind = option(
        "--client",
        default=ClientKind.RAW,
        help="raw, or kafka-python. librdkafka never sees error 89: it speaks an older version of these requests.",
    )

    def flood(self) -> MutationFlood:
        """Parse the options.

        Raises:
            UsageError: The client can't send such requests, or the time-out is no duration.
        """
        if self.client not in _CLIENTS:
            name = self.client.value
            raise UsageError(f"{name} can't flood a cluster with changes of topics", hint="raw or kafka-python")
        total = self.topics
        if total is None and self.kind is not MutationKind.CREATE:
            total = _TOPICS_TO_CHANGE
        return MutationFlood(
            kind=self.kind,
            topics_per_request=self.topics_per_request,
            partitions_per_topic=self.partitions,
            replication_factor=self.replication_factor,
            total_topics=total,
            api_timeout_ms=round(seconds(self.api_timeout) * 1000),
            retry_quota_violation=not self.no_retry_quota_violation,
            validate_only=self.validate_only,
        )


def mutate(
    *,
    target: Annotated[TargetOptions, Without("embedded")],
    mutations: MutationOptions,
    clients: OneConnection,
    honor_throttle: HonorThrottle = "yes",
    length: LengthOptions,
    set_quota: MutationQuota = None,
    verdict: FloodVerdictOptions,
    windows: Annotated[LoadWindowOptions, ONLY_CONTROLLER],
    output: ResultOutput,
) -> int:
    """Flood a cluster with changes of topics, and judge how many partitions per second it took.

    Topics carry a prefix of the run and are all removed at the end. A topic that a quota refuses is retried after
    the throttle time, until the API timeout is over.
    """
    flood = mutations.flood()
    clients = replace(clients, client=mutations.client, honor_throttle=honor_throttle)
    window = windows.settings().controller
    scenario = Scenario(
        name="mutate",
        title=f"a flood of requests to {flood.kind.value}",
        needs=TargetNeed.REAL_BROKER,
        entities=clients.spelled_out(ScenarioClient(client_id=None, does=Workload.MUTATE, flood=flood)),
        duration_s=FLOOD_S,
        window=window,
        quotas=quotas_to_set(clients.names(), CONTROLLER_MUTATION_RATE, set_quota),
        broker_settings=(
            ("controller.quota.window.num", str(window.samples)),
            ("controller.quota.window.size.seconds", str(window.window_s)),
        ),
    )
    change = "floods the cluster with changes of topics"
    return run_flood(scenario, target, length, verdict, output, windows=windows, change=change)
