"""Which raw client does what an entity is to do."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Final

from kafka_quotas.core.errors import UsageError
from kafka_quotas.loadtest.clients.leaders import Leaders
from kafka_quotas.loadtest.clients.raw_client import RawClient
from kafka_quotas.loadtest.clients.raw_engine import RawEngine
from kafka_quotas.loadtest.cluster import TopicView
from kafka_quotas.loadtest.engine import RunClock
from kafka_quotas.loadtest.plan import EntityLoad, LoadPlan
from kafka_quotas.loadtest.workload import Workload

_LIBRARIES: Final = ("crc32c", "numpy")


def raw_engine(
    plan: LoadPlan,
    entities: Sequence[EntityLoad],
    clock: RunClock,
    views: Mapping[tuple[str, Workload], TopicView],
) -> RawEngine:
    """The one engine of all raw clients among the plan's entities, which are given in their order.

    Raises `UsageError` for what a raw client can't do, or where it lacks a library.
    """
    leaders = Leaders(plan.bootstrap)
    return RawEngine([_client(plan, entity, clock, views, leaders) for entity in entities])


def _client(
    plan: LoadPlan,
    entity: EntityLoad,
    clock: RunClock,
    views: Mapping[tuple[str, Workload], TopicView],
    leaders: Leaders,
) -> RawClient:
    index = plan.entities.index(entity)
    if entity.workload is Workload.CONSUME:
        from kafka_quotas.loadtest.clients.raw_consumer import RawConsumer  # noqa: PLC0415 - as most runs need no other

        filled = views[entity.topic, entity.workload].filled
        return RawConsumer(plan, entity, clock, index=index, leaders=leaders, partitions=filled)
    if entity.workload is Workload.PRODUCE:
        _check_libraries()
        from kafka_quotas.loadtest.clients.raw_producer import RawProducer  # noqa: PLC0415 - loads numpy

        return RawProducer(plan, entity, clock, index=index, leaders=leaders)
    raise UsageError(f"raw clients can't do what {entity.name.label} is to do: {entity.workload}")


def _check_libraries() -> None:
    missing = [name for name in _LIBRARIES if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"raw producers need {' and '.join(missing)}",
            hint="pip install 'kafka-quotas[raw]', or --client librdkafka",
        )
