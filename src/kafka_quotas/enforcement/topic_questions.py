"""What the broker is asked about topics before a request that concerns them is passed on.

The questions are Metadata requests of the daemon on the client's own connection, which make no topic; so the broker
tells what this client may know.
"""

from collections.abc import Iterable
from typing import TypeAlias

from kafka_quotas.wire.delete_topics import TopicKey
from kafka_quotas.wire.metadata_request import BY_ID_VERSION, BY_NAME_VERSION, ask_by_id, ask_by_name
from kafka_quotas.wire.metadata_topics import KnownTopic, known_topics
from kafka_quotas.wire.walk import Buffer

_Question: TypeAlias = tuple[int, bytes]
"""The version and the frame of a request."""


class TopicQuestions:
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
