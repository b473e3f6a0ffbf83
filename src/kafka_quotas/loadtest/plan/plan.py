"""What a run is to do: which clients put which load on which topics, for how long, and what their quotas are.

Contract: pure values, resolved before anything is contacted; nothing in here changes during a run.
"""

from dataclasses import dataclass, field
from fractions import Fraction

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.loadtest.plan.throttle_cycles import Direction
from kafka_quotas.loadtest.plan.workload import Arrival, ClientKind, Loop, MutationFlood, RequestFlood, Workload

MAX_RECORD_SIZE = 900_000
"""Bytes; librdkafka and brokers take 1,000,000 with the framing by default."""
MAX_ENTITIES = 1000
"""Clients in one run."""

_BYTES = (Workload.PRODUCE, Workload.CONSUME)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientName:
    """A client by its user (None: the connection's own) and client-id (None: it names none)."""

    user: str | None
    client_id: str | None

    @property
    def label(self) -> str:
        """`user/client-id`; just the client-id where no user is named."""
        client_id = "(no client-id)" if self.client_id is None else self.client_id
        return client_id if self.user is None else f"{self.user}/{client_id}"


def parse_entity_name(text: str) -> ClientName:
    """The client that `user/client-id`, `/client-id` or `client-id` names; the user may hold no slash.

    Raises `UsageError` for an empty client-id or more slashes than one.
    """
    user, slash, client_id = text.rpartition("/")
    if "/" in user or not client_id:
        raise UsageError(f"not an entity: {text!r}", hint="write USER/CLIENT-ID, or /CLIENT-ID without a user")
    return ClientName(user=user if slash and user else None, client_id=client_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLoad:
    """One client of a run: its name, what it does with which topic, what it offers, and the quota to judge by.

    `arrivals_per_second` counts records (produce, consume), requests (requests, mutate) or connections (connect); None
    is all it can. `topic` is empty where none is needed. `quota` is what one broker allows, in the unit of the
    workload's quota; None is unlimited.
    `batch_bytes` None lets the client choose. `group` makes a consumer a member of that group, which shares the topic.
    `is_judged` False leaves its rate unjudged: what its quota counts (thread time) can't be seen from here.
    `is_time_limited`: its thread time is limited, perhaps beside its rate. Entities of one workload and the same
    `bucket` (not empty) share one quota and are judged by their sum. `expected_errors` are what records or topics may
    fail with, by Kafka's names.
    `control`: it is judged against a run of its own, made first. It takes part from `start_s` to `stop_s` of the run
    (None: its end), seconds since the start of the load.
    """

    name: ClientName
    workload: Workload
    topic: str = ""
    arrivals_per_second: Fraction | None = None
    quota: float | None = None
    client: ClientKind = ClientKind.LIBRDKAFKA
    arrival: Arrival = Arrival.CONSTANT
    burst_size: int = 1
    loop: Loop = Loop.OPEN
    in_flight: int = 5
    connections: int = 1
    honor_throttle: bool = True
    record_size: int = 1024
    batch_bytes: int | None = None
    acks: str = "all"
    compression: str = "none"
    group: str | None = None
    flood: RequestFlood | MutationFlood | None = None
    is_judged: bool = True
    is_time_limited: bool = False
    expected_errors: tuple[str, ...] = ()
    bucket: str = ""
    control: bool = False
    start_s: float = 0.0
    stop_s: float | None = None
    properties: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # may hold a password

    def __post_init__(self) -> None:
        if self.workload in _BYTES:
            _check_record(self.topic, self.record_size)
        if self.name.client_id is None and self.client is not ClientKind.RAW:
            raise UsageError("only the raw client can go without a client-id", hint="the libraries name themselves")
        if min(self.burst_size, self.in_flight, self.connections) < 1:
            raise UsageError("bursts, requests in flight and connections are counted from 1")
        if self.start_s < 0 or (self.stop_s is not None and self.stop_s <= self.start_s):
            raise UsageError(f"{self.name.label} stops before it starts", hint="a start is not below 0 s")

    @property
    def key(self) -> tuple[ClientName, Workload]:
        """What tells it from the run's other clients."""
        return self.name, self.workload

    @property
    def direction(self) -> Direction:
        """Which bounds hold for its bytes: only a consumer's are answers."""
        return Direction.CONSUME if self.workload is Workload.CONSUME else Direction.PRODUCE


def _check_record(topic: str, record_size: int) -> None:
    if not topic:
        raise UsageError("a client that moves records needs a topic", hint="name one with --topic")
    if not 1 <= record_size <= MAX_RECORD_SIZE:
        raise UsageError(
            f"a record has 1 to {MAX_RECORD_SIZE} bytes, not {record_size}", hint="example: --record-size 1KiB"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """A whole run. Warm-up comes before `duration_s` and is not judged; sizes are bytes.

    `enforcers`: how many brokers keep the quota, each for itself; None counts the brokers that lead a client's topic.
    `properties` are librdkafka's own names and win over what the tool sets. `run_id` is in every record, so that a
    topic's records can be told from an earlier run's.
    """

    bootstrap: str
    entities: tuple[ClientLoad, ...]
    duration_s: float
    warmup_s: float
    window: QuotaWindow
    enforcers: int | None = None
    connect_timeout_s: float = 5.0
    run_id: int = 0
    seed: int = 0
    properties: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        names = [(entity.name, entity.workload) for entity in self.entities]
        if not names:
            raise UsageError("a load test needs an entity", hint="give --entity USER/CLIENT-ID or /CLIENT-ID")
        if len(names) > MAX_ENTITIES:
            raise UsageError(f"{len(names)} entities in one run", hint=f"the most is {MAX_ENTITIES}")
        if len(set(names)) < len(names):
            raise UsageError("an entity is named twice", hint="every --entity is one client; name each once")
        if not self.duration_s > 0 or not self.warmup_s >= 0:
            raise UsageError(
                "a duration must be above 0 s, and a warm-up not below", hint="example: --duration 60s --warmup 11s"
            )

    @property
    def window_ms(self) -> int:
        """The length of the quota window in milliseconds: samples x sample length."""
        return self.window.samples * self.window.window_ms
