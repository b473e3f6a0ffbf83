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
from kafka_quotas.loadtest.workload import MutationFlood, RequestFlood, Workload

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
    match entity.workload, entity.flood:
        case Workload.CONSUME, _:
            from kafka_quotas.loadtest.clients.raw_consumer import RawConsumer  # noqa: PLC0415 - each run needs a few

            filled = views[entity.topic, entity.workload].filled
            return RawConsumer(plan, entity, clock, index=index, leaders=leaders, partitions=filled)
        case Workload.PRODUCE, _:
            _check_libraries()
            from kafka_quotas.loadtest.clients.raw_producer import RawProducer  # noqa: PLC0415 - loads numpy

            return RawProducer(plan, entity, clock, index=index, leaders=leaders)
        case Workload.CONNECT, _:
            from kafka_quotas.loadtest.clients.raw_storm import RawStorm  # noqa: PLC0415

            return RawStorm(plan, entity, clock, index=index, leaders=leaders)
        case Workload.REQUESTS, RequestFlood() as flood:
            from kafka_quotas.loadtest.clients.raw_flood import RawFlood  # noqa: PLC0415

            records = _one_record(plan, entity, index) if flood.api == "Produce" else b""
            return RawFlood(plan, entity, clock, index=index, leaders=leaders, flood=flood, records=records)
        case Workload.MUTATE, MutationFlood() as flood:
            from kafka_quotas.loadtest.clients.raw_mutator import RawMutator  # noqa: PLC0415

            return RawMutator(plan, entity, clock, index=index, leaders=leaders, flood=flood)
    raise UsageError(f"{entity.name.label} is to {entity.workload}, and nothing says what")


def _one_record(plan: LoadPlan, entity: EntityLoad, index: int) -> bytes:
    """The batch of one record that each request of a flood of Produce requests brings."""
    _check_libraries()
    from kafka_quotas.loadtest.clients.record_batch import RecordBatch, RecordOwner  # noqa: PLC0415 - loads numpy

    owner = RecordOwner(run_id=plan.run_id, entity_index=index)
    batch = RecordBatch(record_size=entity.record_size, capacity=1, owner=owner, filler=b"flood")
    return bytes(batch.made(records=1, first_sequence=0, now_ms=0))


def _check_libraries() -> None:
    missing = [name for name in _LIBRARIES if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"raw producers need {' and '.join(missing)}",
            hint="pip install 'kafka-quotas[raw]', or --client librdkafka",
        )
