"""Where the event log goes: `DIR`, or `kafka://HOST:PORT/TOPIC`."""

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
    """A folder of files: each is closed at `rotate_bytes` or after `rotate_s`; the oldest go above `keep_bytes`."""

    folder: Path
    rotate_bytes: int = ROTATE_BYTES
    rotate_s: float = ROTATE_S
    keep_bytes: int = KEEP_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicTarget:
    """A topic; `bootstrap` is `HOST:PORT` or several of them with commas, `properties` are librdkafka's own."""

    bootstrap: str
    topic: str
    properties: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{SCHEME}{self.bootstrap}/{self.topic}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLogSettings:
    """Where events go, and the name of the cluster that they carry."""

    target: FolderTarget | TopicTarget
    cluster: str


def parse_topic(text: str) -> TopicTarget:
    """The topic that `kafka://HOST:PORT/TOPIC` means. Raises `UsageError` for anything else."""
    bootstrap, _, topic = text.removeprefix(SCHEME).partition("/")
    if not text.startswith(SCHEME) or not bootstrap or not topic or "/" in topic:
        raise UsageError(f"not a topic to log to: {text!r}", hint="for example kafka://127.0.0.1:9092/quota-events")
    return TopicTarget(bootstrap=bootstrap, topic=topic)
