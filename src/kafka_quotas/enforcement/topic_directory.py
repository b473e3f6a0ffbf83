"""What the daemon knows of the cluster's topics, learnt from Metadata that passes or that it asked for itself.

Every client sees only topics that it may describe, so what is known is what all of them have seen together. A topic is
forgotten when a broker says that it does not exist.
Invariants: at most `MAX_TOPICS` topics are known; a topic that came back under another id goes by the new one.
"""

from collections.abc import Iterable
from typing import Final

from kafka_quotas.wire.metadata_topics import KnownTopic
from kafka_quotas.wire.topic_id import TopicId

MAX_TOPICS: Final = 1_000_000
UNKNOWN_TOPIC: Final = 3
_NO_ERROR: Final = 0


class TopicDirectory:
    """The topics of one cluster: names, ids, and which brokers lead some of their partitions."""

    def __init__(self) -> None:
        self.default_partitions = 1
        """How many partitions a topic gets that is created without saying; learnt from the first such topic."""
        self.version = 0
        """Differs after every change of what is led by whom."""
        self._leaders: dict[str, frozenset[int]] = {}
        self._names: dict[TopicId, str] = {}

    def learn(self, topics: Iterable[KnownTopic]) -> None:
        """Nothing; what a broker told of some topics is known."""
        for topic in topics:
            if topic.name is None:
                continue
            if topic.error_code == UNKNOWN_TOPIC:
                self.forget(topic.name)
            elif topic.error_code == _NO_ERROR and (topic.name in self._leaders or len(self._leaders) < MAX_TOPICS):
                self._note(topic.name, topic)

    def forget(self, name: str) -> None:
        """Nothing; there is no such topic any more."""
        if self._leaders.pop(name, None) is not None:
            self.version += 1

    def name_of(self, topic_id: TopicId) -> str | None:
        """The name of the topic with an id, None where it isn't known."""
        return self._names.get(topic_id)

    def led_by(self, node_id: int) -> list[str]:
        """The topics of which a broker leads some partition."""
        return [name for name, leaders in self._leaders.items() if node_id in leaders]

    def _note(self, name: str, topic: KnownTopic) -> None:
        if self._leaders.get(name) != topic.leaders:
            self._leaders[name] = topic.leaders
            self.version += 1
        if topic.topic_id is not None:
            if len(self._names) >= MAX_TOPICS:
                self._names.clear()
            self._names[topic.topic_id] = name
