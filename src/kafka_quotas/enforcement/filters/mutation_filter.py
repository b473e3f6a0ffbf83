"""The filter of CreateTopics, CreatePartitions and DeleteTopics for clients with a `controller_mutation_rate`.

It first asks the broker which of the topics exist, and how many partitions they have. Then it charges each topic, in
the order of the request. In strict mode it cuts the topics over the quota out of the request and refuses them, in
permissive mode all topics pass. With the response it corrects the charges of topics that the broker refused, or gave
another number of partitions.

A created topic costs the partitions it gets, a growing one those it gains, a deleted one those it has. A topic costs
nothing if the broker refuses it regardless of the quota: it exists already, it does not exist, or the request names
it twice.

Brokers create topics unasked as well: because a Metadata request named them, or for the state of a streams group.
A broker with auto-creation creates the topics that a Metadata request names and that do not exist, if the request
allows it. From version 4 on a field of the request forbids it. In older versions the filter asks the broker which
topics do not exist, cuts those out of the request and adds them to the response. The filter takes the requests that may
create topics, and all requests while the thresholds need to know the topics.

For a topic that it is about to create the broker responds that it does not exist (yet), and returns its partitions to
a later request. That can't be distinguished from a topic that it will never create because auto-creation is off: the
daemon gives the charge back for a topic that does not appear within `WAIT_MS`, and does not charge it again for
`UNMADE_MS`. A StreamsGroupHeartbeat response names the internal topics that the broker creates: they are charged then,
permissively, and keep their charge. It is corrected when it is known how many partitions they have: from a Metadata
response, or by asking the broker before the client's next heartbeat passes.

Invariants: one charge per topic, however many clients ask for it; at most `MAX_TOPICS` are kept.

**Source:** KIP-599; `ControllerApis`, `RequestHandlerHelper.sendMaybeThrottleWithControllerQuota` (4.x), and for costs
`ReplicationControlManager` (4.x), `ZkAdminManager` (3.9); `AutoTopicCreationManager`, `KafkaApis.getTopicMetadata`:
charged permissively under ZooKeeper. Under KRaft a broker creates topics by a request in the client's name, which the
controller charges strictly (KIP-1071: `DefaultAutoTopicCreationManager.createStreamsInternalTopics`, 4.3.1).
"""

from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.core.model.quota_key import CONTROLLER_MUTATION_RATE
from kafka_quotas.core.model.value_format import format_number
from kafka_quotas.core.quotas.quota_manager import Limiter, MutationQuota, MutationRefusal
from kafka_quotas.enforcement.config.rules import AutoCreate, EnforcementRules
from kafka_quotas.enforcement.filters.topic_cache import AskingFilter, TopicCache, read_in_slices
from kafka_quotas.enforcement.session.filters import (
    MAX_TOPIC_REQUEST_BYTES,
    Charge,
    FilteredRequest,
    RequestFilter,
    Verdict,
    check_topic_request,
)
from kafka_quotas.enforcement.telemetry.counters import Counters
from kafka_quotas.wire.codec.encoding import with_elements
from kafka_quotas.wire.codec.skip import Buffer
from kafka_quotas.wire.protocol.api_table import API_TABLE, ErrorCode
from kafka_quotas.wire.protocol.header import RequestHeader
from kafka_quotas.wire.proxying.topics import (
    KnownTopic,
    MutationRequest,
    ParsedMetadataRequest,
    TopicKey,
    TopicResult,
    all_refused,
    parse_metadata_request,
    parse_mutation,
    refused_topic,
    topic_results,
    topics_in_the_making,
    with_refused,
    with_topics,
)

WAIT_MS: Final = 60_000
"""Longest time from the charge for a topic until it exists."""
UNMADE_MS: Final = 3_600_000
"""Time without a new charge for a topic that did not appear."""
MAX_TOPICS: Final = 10_000
MAX_ASKED: Final = 100
"""Most topics that the daemon asks a broker about before one request passes."""


class _Charge(NamedTuple):
    limiter: Limiter
    partitions: int
    charged_ms: int


class AutoCreations:
    """The charges for topics that the brokers of one cluster are creating."""

    def __init__(self, cache: TopicCache, counters: Counters) -> None:
        self.cache = cache
        self.counters = counters
        self._making: dict[str, _Charge] = {}
        self._internal: dict[str, _Charge] = {}
        self._unmade: dict[str, int] = {}
        self._unsettled: dict[tuple[str, str], dict[str, None]] = {}
        """(user, client-id) -> the names in `_internal`, as keys in the order of their charges."""

    def take_topics(
        self, topics: tuple[KnownTopic, ...], limiter: Limiter, now_ms: int, charges: list[Charge]
    ) -> MutationQuota | None:
        """Charge the missing topics of a response to a client that may create them, and settle the others.

        All charges are appended, those of settled topics included.

        Returns:
            The quota that the missing topics were charged to, None without any.
        """
        # Both maps are in the order of their times, so that each loop ends at the first entry that is young enough.
        for name, charge in list(self._making.items()):
            if now_ms - charge.charged_ms < WAIT_MS:
                break
            self.settle(name, 0, now_ms, charges)
            while len(self._unmade) >= MAX_TOPICS:
                self._unmade.pop(next(iter(self._unmade)))
            self._unmade[name] = now_ms
        for name, since_ms in list(self._unmade.items()):
            if now_ms - since_ms < UNMADE_MS:
                break
            del self._unmade[name]
        quota: MutationQuota | None = None
        for topic in topics:
            if topic.name is None:
                continue
            if (
                topic.error_code not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE)
                or topic.partitions
            ):
                self.settle(topic.name, topic.partitions, now_ms, charges)
            elif not any(topic.name in known for known in (self._making, self._internal, self._unmade)):
                quota = quota or limiter.mutation_quota(strict=False)
                made = _Charge(limiter, self.cache.default_partitions, now_ms)
                self._charge(topic.name, quota, made, self._making, charges)
        return quota

    def take_internal(
        self, names: tuple[str, ...], limiter: Limiter, now_ms: int, charges: list[Charge]
    ) -> MutationQuota | None:
        """Charge internal topics that a broker creates for a client, at first one partition each."""
        quota: MutationQuota | None = None
        for name in names:
            if name not in self._internal and name not in self._making:
                quota = quota or limiter.mutation_quota(strict=False)
                self._charge(name, quota, _Charge(limiter, 1, now_ms), self._internal, charges)
                self._unsettled.setdefault((limiter.user, limiter.client_id), {})[name] = None
        return quota

    def unsettled(self, limiter: Limiter) -> list[str]:
        """Return up to `MAX_ASKED` internal topics of a client with an unknown number of partitions."""
        return list(islice(self._unsettled.get((limiter.user, limiter.client_id), ()), MAX_ASKED))

    def _charge(
        self, name: str, quota: MutationQuota, made: _Charge, kind: dict[str, _Charge], charges: list[Charge]
    ) -> None:
        quota.record(made.partitions, made.charged_ms)
        charges.append((made.limiter, made.partitions))
        while len(kind) >= MAX_TOPICS:
            self._take(next(iter(kind)))
        kind[name] = made

    def _take(self, name: str) -> _Charge | None:
        charge = self._internal.pop(name, None)
        if charge is None:
            return self._making.pop(name, None)
        client = (charge.limiter.user, charge.limiter.client_id)
        self._unsettled[client].pop(name)
        if not self._unsettled[client]:
            del self._unsettled[client]
        return charge

    def settle(self, name: str, partitions: int, now_ms: int, charges: list[Charge]) -> None:
        """Correct the charge of a topic to the partitions that it has, 0 if it costs nothing after all."""
        self._unmade.pop(name, None)
        charge = self._take(name)
        if charge is None:
            return
        self.counters.mutation_partitions += partitions
        if charge.partitions != partitions:
            charge.limiter.record_without_throttle(partitions - charge.partitions, now_ms)
            charges.append((charge.limiter, partitions - charge.partitions))


FORBIDDEN: Final = b"\0"
"""`allow_auto_topic_creation` as false."""
MAX_LEARNT_BYTES: Final = 256 * 1024
"""Longest response that is read only to learn topics: any client can request any number of longer ones. Where it needs
their content the daemon asks for it once a minute (`BrokerThresholds.asks_for_topics`)."""


class MetadataFilter(AskingFilter):
    """The filter of one Metadata request, with the limiter of a client that has a mutation quota."""

    def __init__(
        self, header: RequestHeader, rule: AutoCreate, limiter: Limiter | None, auto_creations: AutoCreations
    ) -> None:
        super().__init__(header)
        self._rule = rule
        self._limiter = limiter
        self._auto_creations = auto_creations
        self._parsed: ParsedMetadataRequest | None = None
        self._absent: dict[str, int] = {}

    def read(self, frame: bytearray, request: FilteredRequest, now_ms: int) -> None:
        if self._rule is AutoCreate.PASS:
            return  # only its response is of interest
        parsed = self._parsed = parse_metadata_request(frame, self._header)
        # Before version 4 no field forbids auto-creation: only naming no missing topic does.
        if self._forbids(parsed) and parsed.auto_creation_at is None:
            self.ask(parsed.names or ())

    def decide(self, frame: bytearray, request: FilteredRequest, now_ms: int) -> Verdict:
        parsed = self._parsed
        if parsed is None or not self._forbids(parsed):
            return Verdict(frame)
        if parsed.auto_creation_at is not None:
            frame[parsed.auto_creation_at : parsed.auto_creation_at + 1] = FORBIDDEN
            return Verdict(frame)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        self._absent = {
            topic.name: unknown for topic in self._known.values() if topic.name and topic.error_code == unknown
        }
        if not self._absent:
            return Verdict(frame)
        form = API_TABLE[ApiKey.METADATA].encoding(self._header.api_version)
        named = zip(parsed.names or (), parsed.listed.spans, strict=True)
        kept = [frame[start:end] for name, (start, end) in named if name not in self._absent]
        return Verdict(with_elements(form, frame, parsed.listed, kept))

    def on_response(self, frame: bytearray, request: FilteredRequest, now_ms: int) -> Generator[None, None, Buffer]:
        parsed = self._parsed
        if (parsed is None or parsed.names is None) and len(frame) > MAX_LEARNT_BYTES:
            return frame
        topics = yield from read_in_slices(request.api_version, frame)
        self._auto_creations.cache.learn(topics)
        if parsed is None or parsed.names is None:
            return frame
        if self._limiter is not None and self._rule is AutoCreate.COUNT and parsed.may_create:
            # Besides this client's charges there are corrections of other clients' that named the same topics.
            quota = self._auto_creations.take_topics(topics, self._limiter, now_ms, self._charges)
            if quota is not None:
                request.throttled(self._limiter, quota.throttle_ms(now_ms))
        return with_topics(request.api_version, frame, parsed.names, self._absent) if self._absent else frame

    def _forbids(self, parsed: ParsedMetadataRequest) -> bool:
        return self._rule is AutoCreate.FORBID and parsed.may_create and bool(parsed.names)


def metadata_filter(
    request: FilteredRequest,
    header: RequestHeader,
    *,
    rule: AutoCreate,
    learns: Callable[[], bool],
    auto_creations: AutoCreations,
) -> RequestFilter | None:
    """Return the filter of a Metadata request.

    `learns` returns whether the thresholds need to know all topics.
    """
    client = request.client
    limiter = None
    if client is None or client.is_internal or client.policy.exempt or client.is_shadow:
        rule = AutoCreate.PASS
    elif client.mutation.bound is not None:
        limiter = client.mutation
    counts = rule is AutoCreate.COUNT and limiter is not None
    if counts or rule is AutoCreate.FORBID:
        check_topic_request(header)
    elif not learns() or header.frame_length > MAX_TOPIC_REQUEST_BYTES:
        return None  # a request this long is not worth gathering only to learn from it
    else:
        rule = AutoCreate.PASS  # the request of a client without a quota is not charged
    if not counts:
        request.blocks_next = False
    return MetadataFilter(header, rule, limiter, auto_creations)


class StreamsFilter(AskingFilter):
    """The filter of one heartbeat of a client with a mutation quota."""

    def __init__(self, header: RequestHeader, limiter: Limiter, auto_creations: AutoCreations) -> None:
        super().__init__(header)
        self._limiter = limiter
        self._auto_creations = auto_creations
        self.ask(auto_creations.unsettled(limiter))

    def decide(self, frame: bytearray, request: FilteredRequest, now_ms: int) -> Verdict:
        return Verdict(frame)

    def answered(self, topics: tuple[KnownTopic, ...], now_ms: int) -> None:
        self._auto_creations.take_topics(topics, self._limiter, now_ms, self._charges)

    def on_response(self, frame: bytearray, request: FilteredRequest, now_ms: int) -> Buffer:
        names = topics_in_the_making(request.api_version, frame)
        quota = self._auto_creations.take_internal(names, self._limiter, now_ms, self._charges)
        if quota is not None:
            request.throttled(self._limiter, quota.throttle_ms(now_ms))
        return frame


def streams_filter(
    request: FilteredRequest, header: RequestHeader, *, auto_creations: AutoCreations
) -> RequestFilter | None:
    """Return the filter of a StreamsGroupHeartbeat."""
    client = request.client
    if client is None or client.mutation.bound is None:
        return None
    check_topic_request(header)
    return StreamsFilter(header, client.mutation, auto_creations)


DEFAULT_PARTITIONS: Final = -1
"""Partitions of a request that leaves the number to the broker. **Source:** KIP-464."""
MAX_MESSAGE: Final = 500
"""Most characters of an error message: names of entities can be very long."""


class MutationFilter(AskingFilter):
    """The enforcement of a client's mutation quota on one request."""

    def __init__(self, header: RequestHeader, limiter: Limiter, auto_creations: AutoCreations, *, strict: bool) -> None:
        super().__init__(header)
        self._limiter = limiter
        self._quota: MutationQuota = limiter.mutation_quota(strict=strict)
        self._auto_creations = auto_creations
        self._cache, self._counters = auto_creations.cache, auto_creations.counters
        self._mutations: MutationRequest | None = None
        self._charged: dict[TopicKey, int] = {}
        self._refused: dict[TopicKey, bytes] = {}

    def read(self, frame: bytearray, request: FilteredRequest, now_ms: int) -> None:
        mutations = self._mutations = parse_mutation(frame, self._header)
        if not mutations.validate_only:
            self.ask(mutations.keys)

    def decide(self, frame: bytearray, request: FilteredRequest, now_ms: int) -> Verdict:
        mutations = self._mutations
        assert mutations is not None
        if mutations.validate_only:
            return Verdict(frame)
        kept = self._charge(mutations, now_ms)
        if len(kept) == len(mutations.keys):
            return Verdict(frame)
        if kept:
            topics = [frame[slice(*mutations.listed.spans[index])] for index in kept]
            return Verdict(with_elements(mutations.form, frame, mutations.listed, topics))
        self._throttle(request, now_ms)
        results = [self._refused[key] for key in mutations.keys]
        return Verdict(None, all_refused(*request.api, request.correlation_id, results))

    def on_response(self, frame: bytearray, request: FilteredRequest, now_ms: int) -> Buffer:
        mutations = self._mutations
        if mutations is None or mutations.validate_only:
            return frame
        wanted = dict(zip(mutations.keys, mutations.partitions, strict=True))
        for result in topic_results(*request.api, frame):
            self._settle(wanted, result, now_ms)
        self._throttle(request, now_ms)
        if not self._refused:
            return frame
        return with_refused(*request.api, frame, mutations.keys, self._refused)

    def _charge(self, mutations: MutationRequest, now_ms: int) -> Sequence[int]:
        known, kept = self._known, list[int]()
        times, default = Counter(mutations.keys), self._cache.default_partitions
        for index, (key, wanted) in enumerate(zip(mutations.keys, mutations.partitions, strict=True)):
            cost = 0 if times[key] > 1 else _cost(mutations.api_key, wanted, known.get(key), default)
            refusal = self._quota.record(cost, now_ms) if cost else None
            if refusal is None:
                kept.append(index)
                if cost:
                    self._charged[key] = cost
                    self._charges.append((self._limiter, cost))
            else:
                self._counters.mutation_refusals += 1
                self._refused[key] = refused_topic(
                    self._header.api_key,
                    self._header.api_version,
                    key,
                    error_code=ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                    message=_message(refusal),
                )
        return kept

    def _settle(self, wanted: Mapping[TopicKey, int], result: TopicResult, now_ms: int) -> None:
        """Correct the charge of a topic to the partitions that the broker reports."""
        key = next((key for key in result.keys if key in self._charged), None)
        if key is None:
            return
        charged = self._charged.pop(key)
        cost = charged
        # After a timeout the controller may still carry the change out, so the charge stays.
        if result.error_code not in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT):
            cost = 0
        else:
            # A topic is paid for once: by this request, not by one that named it before. A refused request pays
            # nothing (the broker may be creating the topic already), so the charge of the other one stays.
            if self._header.api_key == ApiKey.CREATE_TOPICS and isinstance(key, str):
                self._auto_creations.settle(key, 0, now_ms, self._charges)
            if result.partitions is not None and result.partitions > 0:
                cost = result.partitions
                if wanted[key] == DEFAULT_PARTITIONS:
                    self._cache.default_partitions = cost
        self._counters.mutation_partitions += cost
        if cost != charged:
            self._limiter.record_without_throttle(cost - charged, now_ms)
            self._charges.append((self._limiter, cost - charged))

    def _throttle(self, request: FilteredRequest, now_ms: int) -> None:
        request.throttled(self._limiter, self._quota.throttle_ms(now_ms))


def _cost(api_key: int, wanted: int, known: KnownTopic | None, default_partitions: int) -> int:
    exists = known is not None and (known.error_code == ErrorCode.NONE or known.partitions > 0)
    if api_key == ApiKey.CREATE_TOPICS:
        if exists or (known is not None and known.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION):
            return 0
        return default_partitions if wanted == DEFAULT_PARTITIONS else max(wanted, 0)
    if known is None or not exists:
        return 0
    return known.partitions if api_key == ApiKey.DELETE_TOPICS else max(wanted - known.partitions, 0)


def _message(refusal: MutationRefusal) -> str:
    limit = "no limit" if refusal.limit is None else f"{format_number(refusal.limit)} partitions/s"
    quota = f"{CONTROLLER_MUTATION_RATE.name} of {refusal.entity}"
    text = f"{quota} is exceeded ({limit}): wait {refusal.throttle_ms} ms"
    return text if len(text) <= MAX_MESSAGE else f"{text[: MAX_MESSAGE - 1]}…"


def mutation_filter(
    request: FilteredRequest, header: RequestHeader, *, rules: EnforcementRules, auto_creations: AutoCreations
) -> RequestFilter | None:
    """Return the filter of a request that creates, grows or deletes topics."""
    client = request.client
    if client is None or client.mutation.bound is None:
        return None
    check_topic_request(header)
    strict = rules.refuses_mutations(*request.api) and not client.is_shadow
    return MutationFilter(header, client.mutation, auto_creations, strict=strict)
