"""A topic that the daemon writes to, as `kafka://HOST:PORT/TOPIC` names it."""

from dataclasses import dataclass, field
from typing import Final

from kafka_quotas.core.errors import UsageError

SCHEME: Final = "kafka://"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicTarget:
    """A topic that the daemon writes to."""

    bootstrap: str
    """One or more `HOST:PORT`, separated by commas."""
    topic: str
    properties: dict[str, str] = field(default_factory=dict)
    """librdkafka's properties of its clients."""

    def __str__(self) -> str:
        return f"{SCHEME}{self.bootstrap}/{self.topic}"


def parse_topic(text: str) -> TopicTarget:
    """Return the topic that `kafka://HOST:PORT/TOPIC` means.

    Raises:
        UsageError: The text is no such topic.
    """
    bootstrap, _, topic = text.removeprefix(SCHEME).partition("/")
    if not text.startswith(SCHEME) or not bootstrap or not topic or "/" in topic:
        raise UsageError(f"not a topic: {text!r}", hint="for example kafka://127.0.0.1:9092/quota-events")
    return TopicTarget(bootstrap=bootstrap, topic=topic)
