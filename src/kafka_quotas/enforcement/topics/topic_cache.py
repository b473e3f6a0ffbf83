"""The known topics of a cluster, and the questions to a broker about the topics of a request.

The daemon learns topics from the Metadata responses that pass, and from those to its own questions. Every client sees
only the topics that it may describe, so the cache holds what all clients have seen together. It drops a topic when a
broker reports that it does not exist.

The questions are Metadata requests on the client's own connection, which create no topic; so the broker reports only
what this client may describe.
Invariants: the cache holds at most `MAX_TOPICS` topics; a topic that was created again under another id has the new id.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, NamedTuple

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.wire.client.metadata import MetadataRequest
from kafka_quotas.wire.client.request import request_frame
from kafka_quotas.wire.codec.encoding import TopicId
from kafka_quotas.wire.codec.skip import Buffer
from kafka_quotas.wire.passing.metadata import KnownTopic, iter_topics, known_topics
from kafka_quotas.wire.passing.topic_mutations import TopicKey
from kafka_quotas.wire.protocol.error_code import ErrorCode
from kafka_quotas.wire.protocol.request_header import RequestHeader

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
        """Partitions of a topic whose request leaves the number to the broker, from the last such topic."""
        self.version = 0
        """A number that changes with the leaders of any topic."""
        self._leaders: dict[str, frozenset[int]] = {}
        self._names: dict[TopicId, str] = {}
        self._unlearnt: Iterator[KnownTopic] | None = None

    def learn(self, topics: Iterable[KnownTopic]) -> None:
        """Take over the topics that a broker reported."""
        for topic in topics:
            if topic.name is None:
                continue
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self.forget(topic.name)
            elif topic.error_code == ErrorCode.NONE and (
                topic.name in self._leaders or len(self._leaders) < MAX_TOPICS
            ):
                self._note(topic.name, topic)

    def learn_in_slices(self, topics: Iterator[KnownTopic]) -> None:
        """Take over the first `SLICE` of many topics, and leave the others to `learn_more`."""
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
            # Whoever follows the leaders looks at all topics again: once is enough, after the last slice.
            self.version = version

    def forget(self, name: str) -> None:
        """Drop a topic that no longer exists."""
        if self._leaders.pop(name, None) is not None:
            self.version += 1

    def name_of(self, topic_id: TopicId) -> str | None:
        """Return the name of the topic with an id, None if it isn't known."""
        return self._names.get(topic_id)

    def led_by(self, node_id: int) -> list[str]:
        """Return the topics of which a broker leads at least one partition."""
        return [name for name, leaders in self._leaders.items() if node_id in leaders]

    def _note(self, name: str, topic: KnownTopic) -> None:
        if self._leaders.get(name) != topic.leaders:
            self._leaders[name] = topic.leaders
            self.version += 1
        if topic.topic_id is not None:
            if len(self._names) >= MAX_TOPICS:
                self._names.clear()
            self._names[topic.topic_id] = name


class _Question(NamedTuple):
    """A Metadata request of the daemon's own."""

    version: int
    frame: bytes


class TopicLookup:
    """The questions to a broker before one request, sent in turn with its correlation id."""

    def __init__(self, header: RequestHeader) -> None:
        self._client_id = header.client_id
        self._correlation_id = header.correlation_id
        self._left: list[_Question] = []
        self._asked_version = BY_NAME_VERSION
        self.known: dict[TopicKey, KnownTopic] = {}
        """The topics that the broker has reported so far, by name and by id."""

    def about(self, keys: Iterable[TopicKey]) -> None:
        """Queue the questions about topics with these names and ids."""
        asked = dict.fromkeys(keys)
        names = [key for key in asked if isinstance(key, str)]
        topic_ids = [key for key in asked if isinstance(key, bytes)]
        if names:
            self._ask(MetadataRequest(topics=names), BY_NAME_VERSION)
        if topic_ids:
            self._ask(MetadataRequest(topic_ids=topic_ids), BY_ID_VERSION)

    def about_all(self) -> None:
        """Queue a question about all topics, whose response goes to `iter_response`."""
        self._ask(MetadataRequest(topics=None), BY_NAME_VERSION)

    def next(self) -> bytes | None:
        """Return the next question, None if none is left."""
        if not self._left:
            return None
        self._asked_version, question = self._left.pop(0)
        return question

    def take_response(self, frame: Buffer) -> tuple[KnownTopic, ...]:
        """Parse the broker's response to the last question, and keep its topics in `known`.

        Raises:
            ProtocolError: The frame is no Metadata response.
        """
        topics = known_topics(self._asked_version, frame)
        for topic in topics:
            for key in (topic.name, topic.topic_id):
                if key is not None:
                    self.known[key] = topic
        return topics

    def iter_response(self, frame: Buffer) -> Iterator[KnownTopic]:
        """Return the topics of the broker's response to the last question, each read when it is asked for."""
        return iter_topics(self._asked_version, frame)

    def _ask(self, request: MetadataRequest, version: int) -> None:
        question = request_frame(request, version, correlation_id=self._correlation_id, client_id=self._client_id)
        self._left.append(_Question(version, question))
