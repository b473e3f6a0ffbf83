"""The topics of a run read back, from where they ended before it: is every acknowledged record there, and once.

Bounded in time: what could not be read by then, or is no longer kept, is not taken for lost, and the result says so.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka_quotas.loadtest.clients.errors import translated
from kafka_quotas.loadtest.clients.librdkafka.settings import probe_properties
from kafka_quotas.loadtest.clients.librdkafka.topic_view import look_at_topic
from kafka_quotas.loadtest.plan.plan import ClientLoad, LoadPlan
from kafka_quotas.loadtest.plan.workload import Workload
from kafka_quotas.loadtest.record.delivery import STAMP_SIZE, Delivery, StampCounter
from kafka_quotas.loadtest.result.result import ClientResult, EntityKey

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

READ_BACK_S = 60.0
"""How long reading back may take, by default."""
_CLIENT_ID = "kafka-quotas-load-test-check"  # not one of the run's: their quotas shall not slow this down
_BATCH = 2000
_LOOK_S = 0.2
_ANSWER_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMark:
    """Where a partition ended before a run: the offset of the next record."""

    topic: str
    partition: int
    offset: int


def mark_topics(plan: LoadPlan) -> tuple[TopicMark, ...]:
    """Where the partitions of all topics that the plan produces to end now; call it before the run.

    Raises what `look_at_topic` raises, and `KafkaQuotasError` where the cluster can't be asked.
    """
    entities = _producers(plan)
    if not entities:
        return ()
    from confluent_kafka import KafkaException  # noqa: PLC0415 - loads librdkafka

    look_at_topic(plan, entities[0])  # says best what is wrong, if something is
    consumer = _open(plan, entities[0])
    try:
        return tuple(
            TopicMark(topic=topic, partition=partition, offset=_watermarks(consumer, topic, partition)[1])
            for topic in dict.fromkeys(entity.topic for entity in entities)
            for partition in sorted(consumer.list_topics(topic, timeout=_ANSWER_S).topics[topic].partitions)
        )
    except KafkaException as error:
        raise translated(error.args[0], bootstrap=plan.bootstrap) from error
    finally:
        consumer.close()


def read_back(
    plan: LoadPlan, entities: Sequence[ClientResult], marks: Sequence[TopicMark], *, within_s: float = READ_BACK_S
) -> Mapping[EntityKey, Delivery]:
    """What became of the records of every client that produced; `entities` are in the plan's order.

    Never raises: what can't be read can't be checked, and is said so.
    """
    from confluent_kafka import KafkaException  # noqa: PLC0415 - loads librdkafka

    counter = StampCounter(
        run_id=plan.run_id,
        sent={index: entity.sent for index, entity in enumerate(entities) if entity.workload is Workload.PRODUCE},
    )
    unread: dict[str, str] = {}
    loads = _producers(plan)
    if loads:
        consumer = _open(plan, loads[0])
        try:
            unread = _Reading(consumer, counter, time.monotonic() + within_s).read(marks)
        except KafkaException as error:
            reason = translated(error.args[0], bootstrap=plan.bootstrap).message
            unread = dict.fromkeys((mark.topic for mark in marks), reason)
        finally:
            consumer.close()
    return {
        entity.key: _delivery(index, entity, plan.entities[index], counter, unread)
        for index, entity in enumerate(entities)
        if entity.workload is Workload.PRODUCE
    }


def _producers(plan: LoadPlan) -> list[ClientLoad]:
    return [entity for entity in plan.entities if entity.workload is Workload.PRODUCE]


def _open(plan: LoadPlan, entity: ClientLoad) -> "Consumer":
    from confluent_kafka import Consumer  # noqa: PLC0415 - loads librdkafka

    return Consumer(
        {
            **probe_properties(plan, entity),
            "client.id": _CLIENT_ID,
            "group.id": _CLIENT_ID,  # assigned by hand: nothing is ever committed
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.message.max.bytes": 4 << 20,
        }
    )


def _watermarks(consumer: "Consumer", topic: str, partition: int) -> tuple[int, int]:
    """The first offset that a partition keeps, and the one after its last."""
    from confluent_kafka import TopicPartition  # noqa: PLC0415 - loaded by now

    low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_ANSWER_S)
    return low, high


def _delivery(
    index: int, entity: ClientResult, load: ClientLoad, counter: StampCounter, unread: Mapping[str, str]
) -> Delivery:
    if load.record_size < STAMP_SIZE:
        return Delivery(unchecked=f"records of {load.record_size} bytes have no room for a stamp of {STAMP_SIZE}")
    unchecked = unread.get(entity.topic, "")
    if not unchecked and load.acks == "0":
        unchecked = "with acks=0 nothing is acknowledged"
    if not unchecked and counter.is_unstamped(index) and entity.acked:
        unchecked = "the topic's records carry no stamp of this run"
    unwatched = None if entity.recorder is None else entity.recorder.unwatched
    return counter.delivery(index, acked=entity.acked, unchecked=unchecked, unwatched=unwatched)


class _Reading:
    """Reads every partition from its mark to its end, as long as there is time."""

    def __init__(self, consumer: "Consumer", counter: StampCounter, deadline: float) -> None:
        self._consumer = consumer
        self._counter = counter
        self._deadline = deadline
        self._left: dict[tuple[str, int], int] = {}
        """The offset to stop at, of each partition that is not at its end."""
        self._position: dict[tuple[str, int], int] = {}

    def read(self, marks: Iterable[TopicMark]) -> dict[str, str]:
        """Why a topic was not read in full, of those that were not."""
        from confluent_kafka import TopicPartition  # noqa: PLC0415 - loaded by now

        unread: dict[str, str] = {}
        for mark in marks:
            low, high = _watermarks(self._consumer, mark.topic, mark.partition)
            if low > mark.offset:
                unread[mark.topic] = f"the topic no longer keeps the {low - mark.offset} first records of a partition"
            if high > max(low, mark.offset):
                self._left[mark.topic, mark.partition] = high
                self._position[mark.topic, mark.partition] = max(low, mark.offset)
        self._consumer.assign([TopicPartition(*place, offset) for place, offset in self._position.items()])
        while self._left and time.monotonic() < self._deadline:
            self._take(self._consumer.consume(_BATCH, _LOOK_S))
        for topic, partition in self._left:
            missing = self._left[topic, partition] - self._position[topic, partition]
            unread[topic] = f"{missing} records of a partition could not be read back in time"
        return unread

    def _take(self, messages: "list[Message]") -> None:
        for message in messages:
            place = (message.topic() or "", message.partition() or 0)
            if message.error() is not None:
                self._failed(message, place)
                continue
            end = self._left.get(place)
            if end is None:
                continue
            self._counter.count(message.value())
            self._position[place] = (message.offset() or 0) + 1
            if self._position[place] >= end:
                del self._left[place]

    def _failed(self, message: "Message", place: tuple[str, int]) -> None:
        """Nothing; a partition at its end is done, other errors are repeated by librdkafka until the deadline."""
        from confluent_kafka import KafkaError  # noqa: PLC0415 - loaded by now

        error = message.error()
        if error is not None and error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
            self._left.pop(place, None)
