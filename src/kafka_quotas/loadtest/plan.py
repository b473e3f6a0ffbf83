"""What a run is to do: which clients put which load on which topics, for how long, and what their quotas are.

Contract: pure values, resolved before anything is contacted; nothing in here changes during a run.
"""

from dataclasses import dataclass, field
from fractions import Fraction

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.quota_config import QuotaWindow
from kafka_quotas.loadtest.cycles import Direction

MAX_RECORD_SIZE = 900_000
"""Bytes; librdkafka and brokers take 1,000,000 with the framing by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityName:
    """A client by its user (None: the connection's own) and client-id."""

    user: str | None
    client_id: str

    @property
    def label(self) -> str:
        """`user/client-id`; just the client-id where no user is named."""
        return self.client_id if self.user is None else f"{self.user}/{self.client_id}"


def parse_entity_name(text: str) -> EntityName:
    """The client that `user/client-id`, `/client-id` or `client-id` names; the user may hold no slash.

    Raises `UsageError` for an empty client-id or more slashes than one.
    """
    user, slash, client_id = text.rpartition("/")
    if "/" in user or not client_id:
        raise UsageError(f"not an entity: {text!r}", hint="write USER/CLIENT-ID, or /CLIENT-ID without a user")
    return EntityName(user=user if slash and user else None, client_id=client_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityLoad:
    """One client of a run: its name, what it does with which topic, what it offers, and the quota to judge by.

    `records_per_second` None is all it can; `quota_bytes_per_second` is what one broker allows, None is unlimited.
    """

    name: EntityName
    direction: Direction
    topic: str
    records_per_second: Fraction | None = None
    quota_bytes_per_second: float | None = None
    properties: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # may hold a password


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """A whole run. Warm-up comes before `duration_s` and is not judged; sizes are bytes.

    `enforcers`: how many brokers keep the quota, each for itself; None counts the brokers that lead a client's topic.
    `properties` are librdkafka's own names and win over what the tool sets.
    """

    bootstrap: str
    entities: tuple[EntityLoad, ...]
    duration_s: float
    warmup_s: float
    window: QuotaWindow
    record_size: int = 1024
    acks: str = "all"
    enforcers: int | None = None
    connect_timeout_s: float = 5.0
    properties: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        names = [(entity.name, entity.direction) for entity in self.entities]
        if not names:
            raise UsageError("a load test needs an entity", hint="give --entity USER/CLIENT-ID or /CLIENT-ID")
        if len(set(names)) < len(names):
            raise UsageError("an entity is named twice", hint="every --entity is one client; name each once")
        if not 1 <= self.record_size <= MAX_RECORD_SIZE:
            raise UsageError(
                f"a record has 1 to {MAX_RECORD_SIZE} bytes, not {self.record_size}",
                hint="example: --record-size 1KiB",
            )
        if not self.duration_s > 0 or not self.warmup_s >= 0:
            raise UsageError(
                "a duration must be above 0 s, and a warm-up not below", hint="example: --duration 60s --warmup 11s"
            )

    @property
    def window_ms(self) -> int:
        """The length of the quota window in milliseconds: samples x sample length."""
        return self.window.samples * self.window.window_ms
