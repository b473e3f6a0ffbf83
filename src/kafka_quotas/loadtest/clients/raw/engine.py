"""The engine of all raw clients of a run, and the choice of the raw client for each workload.

The clients share one event loop, uvloop's where it is installed.
"""

import asyncio
import gc
import threading
import time
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Final

from kafka_quotas.core.errors import UsageError
from kafka_quotas.loadtest.clients.cluster_check import TopicView, TopicViews, unreachable
from kafka_quotas.loadtest.clients.engine import RunClock
from kafka_quotas.loadtest.clients.raw.connected_client import RawClient, head_start_ns
from kafka_quotas.loadtest.clients.raw.connection import Leaders, client_access
from kafka_quotas.loadtest.clients.raw.consumer import RawConsumer
from kafka_quotas.loadtest.clients.raw.floods import RawFlood, RawStorm
from kafka_quotas.loadtest.clients.raw.topic_mutator import RawMutator
from kafka_quotas.loadtest.plan.plan import ClientLoad, LoadPlan
from kafka_quotas.loadtest.plan.workload import MutationFlood, RequestFlood, Workload

_LOOK_S: Final = 0.05


class RawEngine:
    """The engine of up to a thousand raw clients, given in the plan's order."""

    def __init__(self, plan: LoadPlan, entities: Sequence[ClientLoad], clock: RunClock, views: TopicViews) -> None:
        leaders: dict[str, Leaders] = {}
        self.clients: list[RawClient] = []
        for entity in entities:
            address = entity.bootstrap or plan.bootstrap
            found = leaders.setdefault(address, Leaders(address))
            self.clients.append(_client(plan, entity, clock, found, views))

    @property
    def head_start_ns(self) -> int:
        return head_start_ns(len(self.clients))

    def run(self, stop: threading.Event) -> None:
        factory = None
        if find_spec("uvloop") is not None:
            import uvloop  # noqa: PLC0415 - only a run of raw clients needs it

            factory = uvloop.new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(self._run(stop))

    async def _run(self, stop: threading.Event) -> None:
        broken: list[Exception] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _loop, context: broken.append(context.get("exception") or RuntimeError(str(context["message"])))
        )
        lives = [asyncio.ensure_future(client.live()) for client in self.clients]
        # All are connected by then. What was made for it is not looked through while they send (`run_load` undoes it).
        first_s = min(client.start_in_s() for client in self.clients)
        asyncio.get_running_loop().call_later(first_s, gc.freeze)
        try:
            while any(client.is_active for client in self.clients) and not stop.is_set():
                if broken or any(client.error is not None for client in self.clients):
                    break
                left_s = (max(client.end_ns for client in self.clients) - time.monotonic_ns()) / 1e9
                await asyncio.sleep(min(max(left_s, 0.001), _LOOK_S))
        finally:
            for client in self.clients:
                client.end()
            for life in lives:
                life.cancel()
            endings = await asyncio.gather(*lives, return_exceptions=True)
        for failure in (*broken, *endings):
            if isinstance(failure, Exception):
                raise failure.exceptions[0] if isinstance(failure, ExceptionGroup) else failure


def look_as_raw_client(plan: LoadPlan, entity: ClientLoad) -> TopicView:
    """Check the cluster and a producer's topic without librdkafka, by the login of the raw client."""

    async def look() -> int:
        leaders = Leaders(plan.bootstrap)
        if entity.workload is not Workload.PRODUCE:
            await leaders.controller(access=access)
            return 0
        return len(set((await leaders.of(entity.topic, access=access)).values()))

    access = client_access(plan, entity)
    try:
        return TopicView(leaders=asyncio.run(look()))
    except OSError as error:
        raise unreachable(plan.bootstrap, error) from error


def _client(plan: LoadPlan, entity: ClientLoad, clock: RunClock, leaders: Leaders, views: TopicViews) -> RawClient:
    match entity.workload, entity.flood:
        case Workload.CONSUME, _:
            return RawConsumer(plan, entity, clock, leaders, views[entity.topic, entity.workload].filled)
        case Workload.PRODUCE, _:
            from kafka_quotas.loadtest.clients.raw.producer import RawProducer  # noqa: PLC0415 - loads numpy

            return RawProducer(plan, entity, clock, leaders)
        case Workload.CONNECT, _:
            return RawStorm(plan, entity, clock, leaders)
        case Workload.REQUESTS, RequestFlood() as flood:
            return RawFlood(plan, entity, clock, leaders, flood)
        case Workload.MUTATE, MutationFlood() as flood:
            return RawMutator(plan, entity, clock, leaders, flood)
    raise UsageError(f"{entity.name.label} is to {entity.workload}, and nothing says what")
