"""The topics that mutation floods find: those to be deleted or grown are made before the load, no others are left."""

from kafka_quotas.loadtest.clients.mutation_plan import MutationPlan
from kafka_quotas.loadtest.plan import LoadPlan
from kafka_quotas.loadtest.topics import TopicAdmin
from kafka_quotas.loadtest.workload import MutationFlood
from kafka_quotas.wire.topic_changes import WantedTopic


def ready_flood_topics(plan: LoadPlan, admin: TopicAdmin) -> None:
    """Nothing; under the prefix of each flood are the topics that it is about, and none of an earlier run of it.

    Raises what `TopicAdmin` raises.
    """
    for entity in plan.entities:
        flood = entity.flood
        if isinstance(flood, MutationFlood):
            admin.remove(flood.prefix)
            before = MutationPlan(flood).topics_before()
            if before:
                admin.make([WantedTopic(name, partitions, flood.replication_factor) for name, partitions in before])


def floods_topics(plan: LoadPlan) -> bool:
    """Whether the plan has mutation floods."""
    return any(isinstance(entity.flood, MutationFlood) for entity in plan.entities)
