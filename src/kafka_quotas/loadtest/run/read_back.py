"""The check of a run's topics: whether every acknowledged record is there, and once.

It reads each topic from its end before the run, within a time limit. Records that it could not read in time, or that
the topic no longer keeps, do not count as lost, and the result reports them.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from kafka_quotas.loadtest.clients.cluster_check import look_at_topic, open_client, probe_properties, translated
from kafka_quotas.loadtest.measurement.delivery import STAMP_SIZE, Delivery, StampCounter
from kafka_quotas.loadtest.plan.plan import ClientLoad, EntityKey, LoadPlan
from kafka_quotas.loadtest.plan.workload import Workload
from kafka_quotas.loadtest.results.result import ClientResult

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, ThrottleEvent

READ_BACK_S = 60.0
"""Default time limit of `read_back`."""
_CLIENT_ID = "kafka-quotas-load-test-check"  # not a client of the run, whose quota would slow the check down
_BATCH = 2000
_LOOK_S = 0.2
_ANSWER_S = 30.0
_STEP_S = 5.0
_FETCH_BYTES = 1 << 20  # a small quota of consumers lets a fetch of more through late


TopicMarks = Mapping[tuple[str, int], int]
"""The ends of partitions before a run, by topic and number."""


def mark_topics(plan: LoadPlan) -> TopicMarks:
    """Return the ends of all partitions of the topics that the plan produces to.

    Call it before the run.
    """
    entities = _producers(plan)
    if not entities:
        return {}
    from confluent_kafka import KafkaException  # noqa: PLC0415 - loads librdkafka

    look_at_topic(plan, entities[0])  # has the most precise errors
    consumer = _open(plan, entities[0])
    try:
        return {
            (topic, partition): _watermarks(consumer, topic, partition)[1]
            for topic in dict.fromkeys(entity.topic for entity in entities)
            for partition in sorted(consumer.list_topics(topic, timeout=_ANSWER_S).topics[topic].partitions)
        }
    except KafkaException as error:
        raise translated(error.args[0], bootstrap=plan.bootstrap) from error
    finally:
        consumer.close()


def read_back(
    plan: LoadPlan,
    entities: Sequence[ClientResult],
    marks: TopicMarks,
    *,
    within_s: float = READ_BACK_S,
    step: Callable[[str], None] = lambda _: None,
) -> Mapping[EntityKey, Delivery]:
    """Return the delivery of the records of every client that produced, given in the plan's order.

    A delivery has a reason where the records could not be checked within the time. An error of the cluster is such a
    reason, not an exception. `step` receives a line every few seconds, which says if a quota slows the reading down.
    """
    from confluent_kafka import KafkaException  # noqa: PLC0415 - loads librdkafka

    counter = StampCounter(
        run_id=plan.run_id,
        sent={index: entity.sent for index, entity in enumerate(entities) if entity.workload is Workload.PRODUCE},
    )
    unread: dict[str, str] = {}
    loads = _producers(plan)
    if loads:
        reading = _Reading(counter, within_s, step)
        consumer = _open(plan, loads[0], reading.throttled)
        try:
            unread = reading.read(consumer, marks)
        except KafkaException as error:
            reason = translated(error.args[0], bootstrap=plan.bootstrap).message
            unread = dict.fromkeys((topic for topic, _ in marks), reason)
        finally:
            consumer.close()
    return {
        entity.key: _delivery(index, entity, plan.entities[index], counter, unread)
        for index, entity in enumerate(entities)
        if entity.workload is Workload.PRODUCE
    }


def _producers(plan: LoadPlan) -> list[ClientLoad]:
    return [entity for entity in plan.entities if entity.workload is Workload.PRODUCE]


def _open(plan: LoadPlan, entity: ClientLoad, throttled: "Callable[[ThrottleEvent], None] | None" = None) -> "Consumer":
    from confluent_kafka import Consumer  # noqa: PLC0415 - loads librdkafka

    return open_client(
        Consumer,
        {
            **probe_properties(plan, entity),
            "client.id": _CLIENT_ID,
            "group.id": _CLIENT_ID,  # assigned by hand: nothing is ever committed
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.message.max.bytes": _FETCH_BYTES,
            **({} if throttled is None else {"throttle_cb": throttled}),
        },
    )


def _watermarks(consumer: "Consumer", topic: str, partition: int) -> tuple[int, int]:
    from confluent_kafka import TopicPartition  # noqa: PLC0415 - loaded by now

    low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_ANSWER_S)
    return low, high


def _delivery(
    index: int, entity: ClientResult, load: ClientLoad, counter: StampCounter, unread: Mapping[str, str]
) -> Delivery:
    if load.record_size < STAMP_SIZE:
        return Delivery(
            acked=entity.acked,
            unchecked=f"records of {load.record_size} bytes have no room for a stamp of {STAMP_SIZE}",
        )
    unchecked = unread.get(entity.topic, "")
    if not unchecked and load.acks == "0":
        unchecked = "with acks=0 nothing is acknowledged"
    if not unchecked and counter.is_unstamped(index) and entity.acked:
        unchecked = "the topic's records carry no stamp of this run"
    unwatched = None if entity.recorder is None else entity.recorder.unwatched
    return counter.delivery(
        index,
        acked=entity.acked,
        unchecked=unchecked,
        unwatched=unwatched,
        is_in_order=load.connections == 1 and not entity.failures,
    )


class _Reading:
    def __init__(self, counter: StampCounter, within_s: float, step: Callable[[str], None]) -> None:
        self._counter = counter
        self._deadline = time.monotonic() + within_s
        self._throttle_s = 0.0
        self._step = step
        self._read = 0
        self._left: dict[tuple[str, int], int] = {}
        """Offset to stop at, by partition that is not at its end."""
        self._position: dict[tuple[str, int], int] = {}

    def throttled(self, event: "ThrottleEvent") -> None:
        self._throttle_s += event.throttle_time

    def read(self, consumer: "Consumer", marks: TopicMarks) -> dict[str, str]:
        from confluent_kafka import TopicPartition  # noqa: PLC0415 - loaded by now

        unread: dict[str, str] = {}
        for (topic, number), offset in marks.items():
            low, high = _watermarks(consumer, topic, number)
            if low > offset:
                unread[topic] = f"the topic no longer keeps the {low - offset} first records of a partition"
            if high > max(low, offset):
                self._left[topic, number] = high
                self._position[topic, number] = max(low, offset)
        consumer.assign([TopicPartition(*partition, at) for partition, at in self._position.items()])
        records = sum(end - self._position[partition] for partition, end in self._left.items())
        next_step = time.monotonic() + _STEP_S
        while self._left and (now := time.monotonic()) < self._deadline:
            self._take(consumer.consume(_BATCH, _LOOK_S))
            if now >= next_step:
                next_step = now + _STEP_S
                self._step(f"read {self._read:,} of {records:,} records back{self._why_slow}")
        for topic, partition in self._left:
            missing = self._left[topic, partition] - self._position[topic, partition]
            unread[topic] = f"{missing} records of a partition could not be read back in time{self._why_slow}"
        return unread

    @property
    def _why_slow(self) -> str:
        if not self._throttle_s:
            return ""
        return f", as a quota of consumers throttles the reader ({_CLIENT_ID}), so far for {self._throttle_s:.0f} s"

    def _take(self, messages: "list[Message]") -> None:
        from confluent_kafka import KafkaError  # noqa: PLC0415 - loaded by now

        for message in messages:
            partition = (message.topic() or "", message.partition() or 0)
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                    self._left.pop(partition, None)
                continue
            end = self._left.get(partition)
            if end is None:
                continue
            self._counter.count(message.value(), partition[1])
            self._read += 1
            self._position[partition] = (message.offset() or 0) + 1
            if self._position[partition] >= end:
                del self._left[partition]
