"""The destination of the event log: `DIR`, or `kafka://HOST:PORT/TOPIC`."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kafka_quotas.core.errors import UsageError

SCHEME: Final = "kafka://"
ROTATE_BYTES: Final = 64 * 1024 * 1024
ROTATE_S: Final = 60.0
KEEP_BYTES: Final = 10 * 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderTarget:
    """A folder of event files as the destination of the event log."""

    folder: Path
    rotate_bytes: int = ROTATE_BYTES
    """Size at which a file is closed."""
    rotate_s: float = ROTATE_S
    """Age at which a file is closed."""
    keep_bytes: int = KEEP_BYTES
    """Size of all files above which the oldest are removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicTarget:
    """A topic as the destination of the event log."""

    bootstrap: str
    """One or more `HOST:PORT`, separated by commas."""
    topic: str
    properties: dict[str, str] = field(default_factory=dict)
    """librdkafka's properties of the producer."""

    def __str__(self) -> str:
        return f"{SCHEME}{self.bootstrap}/{self.topic}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLogSettings:
    """The destination of events, and the name of the cluster in each of them."""

    target: FolderTarget | TopicTarget
    cluster: str


def parse_topic(text: str) -> TopicTarget:
    """Return the topic that `kafka://HOST:PORT/TOPIC` means.

    Raises:
        UsageError: The text is no such topic.
    """
    bootstrap, _, topic = text.removeprefix(SCHEME).partition("/")
    if not text.startswith(SCHEME) or not bootstrap or not topic or "/" in topic:
        raise UsageError(f"not a topic to log to: {text!r}", hint="for example kafka://127.0.0.1:9092/quota-events")
    return TopicTarget(bootstrap=bootstrap, topic=topic)
