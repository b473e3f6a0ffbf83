"""The choice of the engine for each client of a run."""

from collections.abc import Mapping

from kafka_quotas.core.errors import UsageError
from kafka_quotas.loadtest.clients.engine import ClientEngine, RunClock
from kafka_quotas.loadtest.clients.librdkafka.consumer import ConsumerLoad
from kafka_quotas.loadtest.clients.librdkafka.producer import ProducerLoad
from kafka_quotas.loadtest.clients.librdkafka.topic_view import TopicView
from kafka_quotas.loadtest.plan.plan import ClientLoad, LoadPlan
from kafka_quotas.loadtest.plan.workload import ClientKind, MutationFlood, Workload

TopicViews = Mapping[tuple[str, Workload], TopicView]
"""Each topic before the load, by topic and workload."""


def engines(plan: LoadPlan, clock: RunClock, views: TopicViews) -> tuple[ClientEngine, ...]:
    """Return the engines that drive all clients of the plan, before their start.

    Raises:
        UsageError: If a client refuses a property, or its library can't run the workload.
    """
    raw = [entity for entity in plan.entities if entity.client is ClientKind.RAW]
    others = [_single(plan, entity, clock, views) for entity in plan.entities if entity.client is not ClientKind.RAW]
    if not raw:
        return tuple(others)
    from kafka_quotas.loadtest.clients.raw.engine import raw_engine  # noqa: PLC0415 - librdkafka's runs need no loop

    return (*others, raw_engine(plan, raw, clock, views))


def _single(plan: LoadPlan, entity: ClientLoad, clock: RunClock, views: TopicViews) -> ClientEngine:
    """Return the engine of a client that is driven alone."""
    if entity.client is ClientKind.LIBRDKAFKA and entity.workload is Workload.PRODUCE:
        return ProducerLoad(plan, entity, clock)
    if entity.client is ClientKind.LIBRDKAFKA and entity.workload is Workload.CONSUME:
        return ConsumerLoad(plan, entity, clock, views[entity.topic, entity.workload].filled)
    if entity.client is ClientKind.KAFKA_PYTHON:
        return _kafka_python(plan, entity, clock, views)
    raise UsageError(f"{entity.client} can't do what {entity.name.label} is to do: {entity.workload}")


def _kafka_python(plan: LoadPlan, entity: ClientLoad, clock: RunClock, views: TopicViews) -> ClientEngine:
    """Return the engine of a kafka-python client."""
    match entity.workload, entity.flood:
        case Workload.PRODUCE, _:
            from kafka_quotas.loadtest.clients.kafka_python.producer import KafkaPythonProducer  # noqa: PLC0415 - rare

            return KafkaPythonProducer(plan, entity, clock)
        case Workload.CONSUME, _:
            from kafka_quotas.loadtest.clients.kafka_python.consumer import KafkaPythonConsumer  # noqa: PLC0415

            return KafkaPythonConsumer(plan, entity, clock, views[entity.topic, entity.workload].filled)
        case Workload.MUTATE, MutationFlood() as flood:
            from kafka_quotas.loadtest.clients.kafka_python.topic_mutator import KafkaPythonMutator  # noqa: PLC0415

            return KafkaPythonMutator(plan, entity, clock, flood)
    raise UsageError(f"{entity.client} can't do what {entity.name.label} is to do: {entity.workload}")
