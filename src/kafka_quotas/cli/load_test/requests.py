"""`kafka-quotas load-test requests`: floods of chosen requests, and what a request quota makes of them."""

from dataclasses import replace
from typing import Annotated, Final

import typer

from kafka_quotas.cli.framework.option_groups import option, option_group
from kafka_quotas.cli.load_test.flood import FLOOD_S, FloodClientOptions, FloodVerdictOptions, quotas_to_set, run_flood
from kafka_quotas.cli.load_test.options import HonorThrottle, LengthOptions, RecordSize, record_bytes
from kafka_quotas.cli.load_test.result_output import ResultOutput
from kafka_quotas.cli.load_test.target_options import LoadWindowOptions, TargetOptions
from kafka_quotas.cli.options.windows import ONLY_CLIENTS
from kafka_quotas.commands.load_test.typed_scenario import one_for_each
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.quota_key import REQUEST_PERCENTAGE
from kafka_quotas.core.model.value_format import format_count
from kafka_quotas.loadtest.clients.raw.floods import FLOOD_APIS, NEEDS_TOPIC
from kafka_quotas.loadtest.plan.workload import RequestFlood, Workload
from kafka_quotas.loadtest.scenario.model import Scenario, ScenarioClient, ScenarioTopic

_OWN_TOPIC: Final = "flood"

Apis = Annotated[
    list[str],
    typer.Option(
        "--api",
        metavar="API",
        help=f"What to ask: {', '.join(FLOOD_APIS)}; once for all clients, or once for each in the order of --entity.",
        autocompletion=lambda incomplete: [name for name in FLOOD_APIS if name.lower().startswith(incomplete.lower())],
    ),
]
RequestQuota = Annotated[
    list[str] | None,
    typer.Option(
        "--set-quota",
        metavar="PERCENT",
        help="Set this request_percentage on the clients for the time of the run: 1, 200; once for all or once for "
        "each. Thread time can't be seen from outside, so state what you expect with --expect.",
    ),
]


@option_group("Topic")
class TopicOptions:
    """The options about the topic of the requests."""

    topic: str | None = option(
        "--topic NAME",
        help="The topic that requests are about, which must exist. Without it a topic is made for those that need one, "
        "and removed at the end.",
    )
    unauthorised: bool = option(
        "--unauthorised",
        default=False,
        help="The clients have no rights on --topic: being refused is the expected answer.",
    )


@option_group("Requests")
class FloodRequestOptions:
    """The options about the requests."""

    honor_throttle: HonorThrottle = "yes"
    max_wait_ms: int = option(
        "--max-wait-ms MS",
        default=0,
        min=0,
        help="How long a Fetch may be kept waiting for records; 0 asks again at once (fetch.max.wait.ms).",
    )
    min_bytes: int = option(
        "--min-bytes BYTES", default=1, min=0, help="For how many bytes a Fetch waits (fetch.min.bytes)."
    )
    record_size: RecordSize = "100"


def requests(
    *,
    api: Apis,
    target: TargetOptions,
    about: TopicOptions,
    clients: FloodClientOptions,
    asked: FloodRequestOptions,
    length: LengthOptions,
    set_quota: RequestQuota = None,
    verdict: FloodVerdictOptions,
    windows: Annotated[LoadWindowOptions, ONLY_CLIENTS],
    output: ResultOutput,
) -> int:
    """Flood a cluster with requests of one kind per client, and report what got through or was throttled.

    Fetches start after the last record, so that they find nothing. Produce requests carry one record.
    """
    clients = replace(clients, honor_throttle=asked.honor_throttle)
    floods = _floods(asked, about, api, count=len(clients.names()))
    topics = _topics(floods, about.topic)
    what = ScenarioClient(
        client_id=None,
        does=Workload.REQUESTS,
        topic=topics[0].name if topics else "",
        record_size=record_bytes(asked.record_size, example="100"),
        flood=floods[0],
    )
    scenario = Scenario(
        name="requests",
        title=f"a flood of {' and '.join(dict.fromkeys(api))} requests",
        entities=tuple(
            replace(each, flood=flood) for each, flood in zip(clients.spelled_out(what), floods, strict=True)
        ),
        duration_s=FLOOD_S,
        window=windows.settings().client,
        topics=topics,
        quotas=quotas_to_set(clients.names(), REQUEST_PERCENTAGE, set_quota),
    )
    return run_flood(scenario, target, length, verdict, output, windows=windows, change=_change(scenario))


def _floods(
    asked: FloodRequestOptions, about: TopicOptions, apis: list[str], *, count: int
) -> tuple[RequestFlood, ...]:
    names = {name.lower(): name for name in FLOOD_APIS}
    for api in apis:
        if api.lower() not in names:
            raise UsageError(f"no flood of {api} requests is known", hint=f"one of {', '.join(FLOOD_APIS)}")
    floods = [
        RequestFlood(
            api=names[api.lower()],
            max_wait_ms=asked.max_wait_ms,
            min_bytes=asked.min_bytes,
            unauthorised=about.unauthorised,
        )
        for api in apis
    ]
    return one_for_each(floods, count, option="--api")


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


def _change(scenario: Scenario) -> str | None:
    """Return what the flood changes on a cluster, None for nothing."""
    makes = "makes a topic" if scenario.makes_topics else ""
    sets = f"sets {format_count(len(scenario.quotas), 'quota')}" if scenario.quotas else ""
    return " and ".join(filter(None, (makes, sets))) or None
