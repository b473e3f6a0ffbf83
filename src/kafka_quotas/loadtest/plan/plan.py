"""The plan of a run: which clients put which load on which topics, how long, and under which quotas.

Contract: pure values, resolved before any server is contacted. A plan never changes during a run.
"""

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Annotated, Final

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.formats.typed_document import FieldSpec
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.loadtest.plan.document import InScenario, duration, size, some, text, whole, word
from kafka_quotas.loadtest.plan.workload import Arrival, ClientKind, Flood, Loop, MutationFlood, Workload

MIN_WINDOWS = 5
"""The number of quota windows, after the first, that a verdict takes."""
MAX_RECORD_SIZE = 900_000
"""Bytes, as librdkafka and brokers take 1,000,000 with the framing by default."""
MAX_ENTITIES = 1000
MAX_SHARES = 1000


NAME: Final = r"[A-Za-z0-9._-]{1,60}"
_CLIENT: Final = word(
    "the client library: librdkafka continues to send when throttled, raw waits and costs least, so that a run can "
    "have 1,000",
    *ClientKind,
    build=ClientKind,
    removed={"kafka-python": "client: raw waits for its throttle time, and its request.timeout.ms, as Java's does"},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientName:
    """A client by its user and client-id."""

    user: str | None
    client_id: str | None

    @property
    def label(self) -> str:
        """`user/client-id`, or the client-id alone where there is no user."""
        client_id = "(no client-id)" if self.client_id is None else self.client_id
        return client_id if self.user is None else f"{self.user}/{client_id}"


EntityKey = tuple[ClientName, Workload]


def parse_entity_name(text: str) -> ClientName:
    """Parse the name of a client: `user/client-id`, `/client-id` or `client-id`.

    The client-id may have slashes after the first one.

    Raises:
        UsageError: The client-id is empty.
    """
    user, slash, rest = text.partition("/")
    client_id = rest if slash else user
    if not client_id:
        raise UsageError(f"not an entity: {text!r}", hint="write USER/CLIENT-ID, or /CLIENT-ID without a user")
    return ClientName(user=user if slash and user else None, client_id=client_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class RampPhase:
    """A time in which a rate changes evenly from one value to another."""

    duration_s: float
    """Seconds, 0 for a jump."""
    start_rate: Fraction
    end_rate: Fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings(InScenario):
    """The settings of a client, of which scenario files, plans and options are made."""

    client: Annotated[ClientKind, _CLIENT] = ClientKind.LIBRDKAFKA
    honor_throttle: Annotated[bool, FieldSpec(about="whether it keeps still when told (raw clients only)")] = True
    arrival: Annotated[Arrival, FieldSpec(about="how arrivals are spread over time")] = Arrival.CONSTANT
    burst_size: Annotated[int, whole("arrivals in one burst", name="burst")] = 1
    loop: Annotated[Loop, FieldSpec(about="open: on a schedule; closed: the next waits for an answer")] = Loop.OPEN
    in_flight: Annotated[int, whole("requests without an answer at once", most=1000)] = 5
    connections: Annotated[int, whole("how many connections each client keeps", most=10_000)] = 1
    record_size: Annotated[int, size(about="bytes in a record: 100, 1KiB")] = 1024
    batch_bytes: Annotated[int | None, size(about="bytes in a request at most", name="batch")] = None
    """None for `request_size`."""
    acks: Annotated[str, word("who confirms a record", "0", "1", "all")] = "all"
    compression: Annotated[str, word("how batches are compressed", "none", "gzip", "snappy", "lz4", "zstd")] = "none"
    group: Annotated[str | None, text("the consumer group it is a member of", NAME, "readers", takes=str)] = None
    control: Annotated[
        bool, FieldSpec(about="whether it is to stay unharmed, judged against a run of its own made first")
    ] = False
    is_judged: Annotated[bool, FieldSpec(about="whether its rate is judged by its quota at all", name="judged")] = True
    """False if its quota counts thread time, which is not visible here."""
    expected_errors: Annotated[
        tuple[Annotated[str, text("", r"[A-Z_]{1,60}", "POLICY_VIOLATION")], ...],
        some("errors that belong to what is shown, by Kafka's names"),
    ] = ()

    def cost_of(self, workload: Workload, flood: Flood | None) -> int:
        """Return the cost of one arrival in the unit of its quota, where bytes are those of the payload."""
        if workload.moves_records:
            return self.record_size
        return flood.topics_per_request * flood.partitions_per_topic if isinstance(flood, MutationFlood) else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadShare:
    """One of several equal shares of a load, each of which a process of its own puts on the target."""

    number: int = 1
    count: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.count <= MAX_SHARES:
            raise UsageError(
                f"no share is {self.number}/{self.count}", hint=f"write 2/4, with at most {MAX_SHARES} shares"
            )


WHOLE = LoadShare()


LARGEST_REQUEST = 1_000_000
_SMALLEST_REQUEST = 1024
_REQUEST_S = 0.1  # of its quota is what a client sends at once at most, so that a burst is many requests,
_WINDOW_SHARE = 0.02  # and this share of a window's quota, with all others that share it


def request_size(quota_bytes_per_second: float | None, *, window_s: float, sharing: int = 1) -> int:
    """Return the most bytes to send or fetch in one request.

    `sharing` is the number of connections that share the quota.
    """
    if quota_bytes_per_second is None:
        return LARGEST_REQUEST
    size = quota_bytes_per_second * min(_REQUEST_S, _WINDOW_SHARE * window_s / sharing)
    return int(min(max(size, _SMALLEST_REQUEST), LARGEST_REQUEST))


@dataclass(frozen=True, slots=True, kw_only=True)
class LaterQuota:
    """The quota of a client after the last change that a run makes to it."""

    at_s: float
    """When that change is made, in seconds since the start of the load."""
    quota: float
    """The limit of one broker, in the unit of the workload's quota."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLoad(ClientSettings):
    """One client of a run: its name, its load, and the quota that it is judged by."""

    name: ClientName
    workload: Workload
    topic: str = ""
    """The topic, empty where none is needed."""
    bootstrap: str = ""
    """The address that it connects to, empty for that of the plan."""
    arrivals_per_second: Fraction | None = None
    """Records (produce, consume), requests (requests, mutate) or connections (connect), None for as many as possible.

    With a ramp it is the highest rate.
    """
    ramp: tuple[RampPhase, ...] = ()
    """The phases of a rate that changes, from the start of the client on, empty for one that does not."""
    quota: float | None = None
    """The limit of one broker, in the unit of the workload's quota, None for unlimited."""
    later: LaterQuota | None = None
    """The quota that it is judged by from the time of its change on, None where the run changes none."""
    flood: Flood | None = None
    quotas: tuple[tuple[str, float], ...] = ()
    """Every quota in force that concerns its workload, by the name of its key, per broker."""
    is_time_limited: bool = False
    """Whether its thread time is limited, perhaps beside its rate."""
    share: LoadShare = WHOLE
    """The share of its arrivals that this process sends."""
    bucket: str = ""
    """The name of the quota that it shares with clients of its workload, which are judged by their sum, empty for none.
    """
    start_s: float = 0.0
    """When it starts, in seconds since the start of the load."""
    stop_s: float | None = None
    """When it stops, in seconds since the start of the load, None for the end of the run."""
    properties: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # may hold a password

    def __post_init__(self) -> None:
        if self.workload.moves_records and not self.topic:
            raise UsageError("a client that moves records needs a topic", hint="name one with --topic")
        if self.workload.moves_records and not 1 <= self.record_size <= MAX_RECORD_SIZE:
            raise UsageError(
                f"a record has 1 to {MAX_RECORD_SIZE} bytes, not {self.record_size}", hint="example: --record-size 1KiB"
            )
        if self.name.client_id is None and self.client is not ClientKind.RAW:
            raise UsageError("only the raw client can go without a client-id", hint="the libraries name themselves")
        if self.start_s < 0 or (self.stop_s is not None and self.stop_s <= self.start_s):
            raise UsageError(f"{self.name.label} stops before it starts", hint="a start is not below 0 s")

    @property
    def arrival_cost(self) -> int:
        """The cost of one of its arrivals."""
        return self.cost_of(self.workload, self.flood)

    @property
    def key(self) -> EntityKey:
        """The key that identifies it among the clients of the run."""
        return self.name, self.workload

    @property
    def request_bytes(self) -> int:
        """The most bytes of records to send or fetch in one request."""
        return LARGEST_REQUEST if self.batch_bytes is None else self.batch_bytes

    @property
    def is_held_back(self) -> bool:
        """Whether it offers more than a quota whose window decides what it gets, and is judged by that."""
        rate = self.arrivals_per_second
        if self.quota is None or not self.is_judged or self.workload is Workload.MUTATE:
            return False
        return rate is None or float(rate) * self.arrival_cost > self.quota

    def judged_until_s(self, window_s: float, warmup_s: float) -> float:
        """Return when the windows that its verdict takes are over, in seconds since the start of the load."""
        from_s = max(warmup_s, self.start_s + window_s)
        if self.later is not None:  # the first window after it has settled counts as little
            from_s = self.later.at_s + 2 * window_s
        # A broker counts a refused connection for the wait of the next one, so that a cycle takes about two windows.
        return from_s + MIN_WINDOWS * window_s * (2 if self.workload is Workload.CONNECT else 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRestart(InScenario):
    """A restart of a server of the target that belongs to the experiment, and does not make the run void.

    A broker that stays away for longer, is restarted at another time, or is not restarted does.
    """

    server: Annotated[str, text("the id of a broker, or HOST:PORT", r"[^\s]+", "1")]
    at_s: Annotated[float, duration("when it goes at the earliest, from the end of the warm-up", name="at")]
    """In a plan: seconds since the start of the load."""
    within_s: Annotated[float, duration("how long after that it answers again", zero=False, name="within")]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """A whole run."""

    bootstrap: str
    entities: tuple[ClientLoad, ...]
    duration_s: float
    """Seconds after the warm-up."""
    warmup_s: float
    """Seconds before `duration_s` that are not judged."""
    window: QuotaWindow
    enforcers: int | None = None
    """The number of brokers that keep the quota, each for itself, None for those that lead a client's topic."""
    restarts: tuple[PlannedRestart, ...] = ()
    """The restarts of its target that somebody makes during the run."""
    connect_timeout_s: float = 5.0
    run_id: int = 0
    """The number in every record, which distinguishes the records of this run from those of earlier ones."""
    seed: int = 0
    properties: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Properties by librdkafka's names, which override what the tool sets."""

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

    def properties_of(self, entity: ClientLoad) -> dict[str, str]:
        """Return the properties of one client, of which its own override those of the plan."""
        return {**dict(self.properties), **dict(entity.properties)}

    @property
    def window_ms(self) -> int:
        """The length of the quota window in milliseconds: samples x sample length."""
        return self.window.samples * self.window.window_ms

    @property
    def needed_s(self) -> float:
        """The seconds after the warm-up that verdicts on all clients take, 0 where no quota holds any back.

        Clients that stop before don't count: no longer run helps them.
        """
        window_s = self.window_ms / 1000
        untils = (
            entity.judged_until_s(window_s, self.warmup_s)
            for entity in self.entities
            if entity.is_held_back and entity.stop_s is None
        )
        return max(max(untils, default=0.0) - self.warmup_s, 0.0)
