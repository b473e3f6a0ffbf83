"""A client with a mutation quota at a broker of topics in memory, and its requests to create topics."""

from typing import Any

from tests.support.brokers.topic_broker import CREATE_TOPICS, METADATA, Client, TopicBroker, request_of
from tests.support.frames.enforcement import CLIENT_ID, Pair

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.enforcement.config.client_policy import Mode
from kafka_quotas.enforcement.config.rules import AutoCreate, MutationMode
from kafka_quotas.enforcement.event_log.charges import OnCharge

WINDOW = QuotaWindow(samples=3, window_s=1)
QUOTA_EXCEEDED = 89
OF_APP = Entity.of(client_id=CLIENT_ID)


def client(
    broker: TopicBroker | None = None,
    *,
    rate: float | None = 1.0,
    mode: MutationMode = MutationMode.AUTO,
    auto_create: AutoCreate = AutoCreate.COUNT,
    terms: Mode = Mode.KAFKA,
    on_charge: OnCharge | None = None,
) -> Client:
    """A client whose client-id may do `rate` partitions per second in bursts of 3 times that."""
    quotas = {} if rate is None else {QuotaType.CONTROLLER_MUTATION: rate}
    pair = Pair(
        quotas=quotas, mode=terms, mutations=mode, auto_create=auto_create, has_topics=True, on_charge=on_charge
    )
    return Client(pair, broker or TopicBroker())


def new_topic(version: int, name: str, partitions: int = 1, *, assigned: int = 0) -> Any:
    kind = request_of(CREATE_TOPICS, version).CreatableTopic
    assignments = [
        kind.CreatableReplicaAssignment(version=version, partition_index=index, broker_ids=[1])
        for index in range(assigned)
    ]
    return kind(
        version=version,
        name=name,
        num_partitions=-1 if assigned else partitions,
        replication_factor=-1 if assigned else 1,
        assignments=assignments,
        configs=[],
    )


def create(who: Client, version: int, *topics: tuple[str, int], validate_only: bool = False) -> Any:
    wanted = [new_topic(version, name, partitions) for name, partitions in topics]
    return who.ask(CREATE_TOPICS, version, topics=wanted, timeout_ms=1000, validate_only=validate_only)


def codes(response: Any, name: str = "topics") -> list[tuple[str, int]]:
    return [(result.name, result.error_code) for result in getattr(response, name)]


def ask_for(who: Client, version: int, *names: str, may_create: bool = True) -> Any:
    kind = request_of(METADATA, version).MetadataRequestTopic
    topics = [kind(version=version, name=name) for name in names]
    fields: dict[str, Any] = {"allow_auto_topic_creation": may_create} if version >= 4 else {}
    return who.ask(METADATA, version, topics=topics, **fields)
