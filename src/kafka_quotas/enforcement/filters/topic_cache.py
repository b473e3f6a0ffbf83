"""The known topics of a cluster, and the questions to a broker about the topics of a request.

The daemon learns topics from the Metadata responses that pass, and from those to its own questions. Every client sees
only the topics that it may describe, so the cache holds what all clients have seen together. It drops a topic when a
broker reports that it does not exist.

The questions are Metadata requests on the client's own connection, which create no topic; so the broker reports only
what this client may describe.
Invariants: the cache holds at most `MAX_TOPICS` topics; a topic that was created again under another id has the new id.
"""

from abc import abstractmethod
from collections.abc import Generator, Iterable, Iterator
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Final

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.enforcement.session.filters import FilteredRequest, RequestFilter, Verdict
from kafka_quotas.wire.client.admin import MetadataRequest
from kafka_quotas.wire.client.request import request_frame
from kafka_quotas.wire.codec.encoding import TopicId
from kafka_quotas.wire.codec.skip import Buffer
from kafka_quotas.wire.protocol.api_table import ErrorCode
from kafka_quotas.wire.protocol.header import RequestHeader
from kafka_quotas.wire.proxying.topics import KnownTopic, TopicKey, iter_topics

MAX_TOPICS: Final = 1_000_000
SLICE: Final = 200
"""Topics of a long response that are read at once: about 7 ms with 12 partitions each, while no client is served."""
BY_NAME_VERSION: Final = 4
"""The version of Metadata to ask by name: the first that can prevent creation, since Kafka 0.11."""
BY_ID_VERSION: Final = 12
"""The version of Metadata to ask by topic id: the first that accepts them, since Kafka 3.1."""


class TopicCache:
    """The known topics of one cluster: their names, ids and leaders."""

    def __init__(self) -> None:
        self.default_partitions = 1
        """Partitions of a topic if its CreateTopics leaves the number to the broker, by the last such topic."""
        self.version = 0
        """A number that changes with the leaders of any topic, and with the number of topics."""
        self._topics: dict[str, tuple[frozenset[int], TopicId | None]] = {}
        """Name -> node ids of its leaders, and its id."""
        self._names: dict[TopicId, str] = {}
        self._led: dict[int, set[str]] = {}
        self._unlearnt: Iterator[KnownTopic] | None = None

    def learn(self, topics: Iterable[KnownTopic]) -> None:
        """Take over the topics that a broker reported."""
        for topic in topics:
            if topic.name is None:
                continue
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self.forget(topic.name)
            elif topic.error_code == ErrorCode.NONE and (topic.name in self._topics or len(self._topics) < MAX_TOPICS):
                known = self._topics.get(topic.name)
                # Older versions of Metadata have no ids: their reports are no reason to forget one.
                topic_id = topic.topic_id or (known and known[1])
                if known != (topic.leaders, topic_id):
                    self._replace(topic.name, topic.leaders, topic_id)

    def learn_in_slices(self, topics: Iterator[KnownTopic]) -> None:
        """Take over many topics, `SLICE` of them at each `learn_more`, the first of which is this one."""
        self._unlearnt = topics
        self.learn_more()

    def learn_more(self) -> None:
        """Take over the next `SLICE` topics of those that `learn_in_slices` left."""
        topics, version = self._unlearnt, self.version
        if topics is None:
            return
        try:
            piece = list(islice(topics, SLICE))
        except ProtocolError:
            piece = []  # the response is broken from here on, which is no fault of the client that is served now
        self.learn(piece)
        if len(piece) < SLICE:
            self._unlearnt = None
            self.version += 1
        else:
            # Each change of the version has the thresholds count all topics again: once is enough, at the end.
            self.version = version

    def forget(self, name: str) -> None:
        """Drop a topic that no longer exists."""
        if name in self._topics:
            self._replace(name, frozenset(), None)
            del self._topics[name]

    def knows(self, topic: TopicKey) -> bool:
        """Return whether a broker has reported the topic with a name or an id."""
        return topic in self._topics or topic in self._names

    def name_of(self, topic_id: TopicId) -> str | None:
        """Return the name of the topic with an id, None if it isn't known."""
        return self._names.get(topic_id)

    def led_by(self, node_id: int) -> AbstractSet[str]:
        """Return the topics of which a broker leads at least one partition, as a set that follows the cache."""
        return self._led.setdefault(node_id, set())

    def _replace(self, name: str, leaders: frozenset[int], topic_id: TopicId | None) -> None:
        old_leaders, old_id = self._topics.get(name, (frozenset(), None))
        for node_id in old_leaders - leaders:
            self._led[node_id].discard(name)
        for node_id in leaders - old_leaders:
            self._led.setdefault(node_id, set()).add(name)
        if old_id is not None and old_id != topic_id:
            self._names.pop(old_id, None)
        if topic_id is not None:
            self._names[topic_id] = name
        self._topics[name] = (leaders, topic_id)
        self.version += leaders != old_leaders


_READ_AT_ONCE: Final = 25
"""Topics that are read at once: about a millisecond with 12 partitions each."""


def read_in_slices(api_version: int, frame: Buffer) -> Generator[None, None, tuple[KnownTopic, ...]]:
    """Return the topics of a whole Metadata response, of which some are read at a time."""
    topics: list[KnownTopic] = []
    for topic in iter_topics(api_version, frame):
        topics.append(topic)
        if len(topics) % _READ_AT_ONCE == 0:
            yield
    return tuple(topics)


class AskingFilter(RequestFilter):
    """A filter that may ask the broker about topics before it decides."""

    def __init__(self, header: RequestHeader) -> None:
        super().__init__(header)
        self._is_read = False
        self._questions: list[tuple[int, bytes]] = []
        """Version and frame of each Metadata request that is left."""
        self._asked_version = BY_NAME_VERSION
        self._known: dict[TopicKey, KnownTopic] = {}
        """The topics that the broker has reported so far, by name and by id."""

    def read(self, frame: bytearray, request: FilteredRequest, now_ms: int) -> None:
        """Read the whole request, and ask what has to be known."""

    @abstractmethod
    def decide(self, frame: bytearray, request: FilteredRequest, now_ms: int) -> Verdict:
        """Decide about the whole request once all questions are answered."""

    def ask(self, keys: Iterable[TopicKey]) -> None:
        """Ask about topics with these names and ids."""
        asked = dict.fromkeys(keys)
        names = [key for key in asked if isinstance(key, str)]
        topic_ids = [key for key in asked if isinstance(key, bytes)]
        if names:
            self._ask(MetadataRequest(topics=names), BY_NAME_VERSION)
        if topic_ids:
            self._ask(MetadataRequest(topic_ids=topic_ids), BY_ID_VERSION)

    def ask_all(self) -> None:
        """Ask about all topics, of which a response has too many to be kept in `_known`."""
        self._ask(MetadataRequest(topics=None), BY_NAME_VERSION)

    def on_request(self, frame: bytearray, request: FilteredRequest, now_ms: int) -> Verdict:
        if not self._is_read:
            self._is_read = True
            self.read(frame, request, now_ms)
        if not self._questions:
            return self.decide(frame, request, now_ms)
        self._asked_version, question = self._questions.pop(0)
        return Verdict(question, is_own=True)

    def on_response_to_own(
        self, frame: bytearray, request: FilteredRequest, now_ms: int
    ) -> Generator[None, None, None]:
        topics = yield from read_in_slices(self._asked_version, frame)
        for topic in topics:
            for key in (topic.name, topic.topic_id):
                if key is not None:
                    self._known[key] = topic
        self.answered(topics, now_ms)

    def answered(self, topics: tuple[KnownTopic, ...], now_ms: int) -> None:
        """Take up the topics of an answer."""

    def _ask(self, request: MetadataRequest, version: int) -> None:
        header = self._header
        question = request_frame(request, version, correlation_id=header.correlation_id, client_id=header.client_id)
        self._questions.append((version, question))
