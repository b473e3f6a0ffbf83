"""What the broker is asked about topics before a request that concerns them is passed on.

The questions are Metadata requests of the daemon on the client's own connection, which make no topic; so the broker
tells what this client may know.

What the daemon knows of the cluster's topics, learnt from Metadata that passes or that it asked for itself.

Every client sees only topics that it may describe, so what is known is what all of them have seen together. A topic is
forgotten when a broker says that it does not exist.
Invariants: at most `MAX_TOPICS` topics are known; a topic that came back under another id goes by the new one.
"""

from collections.abc import Iterable
from typing import Final, TypeAlias

from kafka_quotas.wire.codec.encoding import TopicId
from kafka_quotas.wire.codec.skip import Buffer
from kafka_quotas.wire.passing.metadata import (
    BY_ID_VERSION,
    BY_NAME_VERSION,
    KnownTopic,
    ask_by_id,
    ask_by_name,
    known_topics,
)
from kafka_quotas.wire.passing.topic_requests import TopicKey

MAX_TOPICS: Final = 1_000_000
UNKNOWN_TOPIC: Final = 3
_NO_ERROR: Final = 0


class TopicCache:
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


_Question: TypeAlias = tuple[int, bytes]
"""The version and the frame of a request."""


class TopicLookup:
    """The questions of one request, asked one after the other under its correlation id."""

    def __init__(self, *, client_id: str, correlation_id: int) -> None:
        self._client_id = client_id
        self._correlation_id = correlation_id
        self._left: list[_Question] = []
        self._asked_version = BY_NAME_VERSION
        self.known: dict[TopicKey, KnownTopic] = {}
        """What was told so far, by name and by id."""

    def about(self, keys: Iterable[TopicKey]) -> None:
        """Nothing; the topics that go by these names and ids will be asked for."""
        asked = dict.fromkeys(keys)
        names = [key for key in asked if isinstance(key, str)]
        topic_ids = [key for key in asked if isinstance(key, bytes)]
        if names:
            self._ask_by_name(names)
        if topic_ids:
            question = ask_by_id(topic_ids, correlation_id=self._correlation_id, client_id=self._client_id)
            self._left.append((BY_ID_VERSION, question))

    def about_all(self) -> None:
        """Nothing; all topics will be asked for."""
        self._ask_by_name(None)

    def next(self) -> bytes | None:
        """The next question, None where all have been asked."""
        if not self._left:
            return None
        self._asked_version, question = self._left.pop(0)
        return question

    def told(self, frame: Buffer) -> tuple[KnownTopic, ...]:
        """What the broker answered to the last question. Raises `ProtocolError` where that is no answer."""
        topics = known_topics(self._asked_version, frame)
        for topic in topics:
            for key in (topic.name, topic.topic_id):
                if key is not None:
                    self.known[key] = topic
        return topics

    def _ask_by_name(self, names: list[str] | None) -> None:
        question = ask_by_name(names, correlation_id=self._correlation_id, client_id=self._client_id)
        self._left.append((BY_NAME_VERSION, question))
