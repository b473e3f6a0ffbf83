"""The filter of CreateTopics, CreatePartitions and DeleteTopics for clients with a `controller_mutation_rate`.

It first asks the broker which of the topics exist, and how many partitions they have. Then it charges each topic, in
the order of the request. In strict mode it cuts the topics over the quota out of the request and refuses them, in
permissive mode all topics pass. With the response it corrects the charges of topics that the broker refused, or gave
another number of partitions.

A created topic costs the partitions it gets, a growing one those it gains, a deleted one those it has. A topic costs
nothing if the broker refuses it regardless of the quota: it exists already, it does not exist, or the request names
it twice.

**Source:** KIP-599; `ControllerApis`, `RequestHandlerHelper.sendMaybeThrottleWithControllerQuota` (4.x), and for costs
`ReplicationControlManager` (4.x), `ZkAdminManager` (3.9).
"""

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.core.model.quota_key import CONTROLLER_MUTATION_RATE
from kafka_quotas.core.model.value_format import format_number
from kafka_quotas.core.quotas.quota_manager import Limiter, MutationQuota, MutationRefusal
from kafka_quotas.enforcement.config.rules import EnforcementRules
from kafka_quotas.enforcement.filters.auto_creation import AutoCreations
from kafka_quotas.enforcement.filters.topic_cache import TopicCache, TopicLookup
from kafka_quotas.enforcement.quotas.broker_quotas import BrokerQuotas
from kafka_quotas.enforcement.session.filters import (
    FilteredRequest,
    Forward,
    NotFiltered,
    RequestFilter,
    Respond,
    SendRequest,
    Verdict,
    check_topic_request,
)
from kafka_quotas.enforcement.telemetry.counters import Counters
from kafka_quotas.wire.codec.encoding import with_elements
from kafka_quotas.wire.codec.skip import Buffer
from kafka_quotas.wire.protocol.error_code import ErrorCode
from kafka_quotas.wire.protocol.header import RequestHeader
from kafka_quotas.wire.proxying.topics import (
    KnownTopic,
    MutationRequest,
    TopicKey,
    TopicResult,
    all_refused,
    parse_mutation,
    refused_topic,
    topic_results,
    with_refused,
)

DEFAULT_PARTITIONS: Final = -1
"""Partitions of a request that leaves the number to the broker. **Source:** KIP-464."""
MAX_MESSAGE: Final = 500
"""Most characters of an error message: names of entities can be very long."""


class MutationFilter(RequestFilter):
    """The enforcement of a client's mutation quota on one request."""

    def __init__(
        self, header: RequestHeader, limiter: Limiter, *, strict: bool, made_by: "MutationFilterFactory"
    ) -> None:
        super().__init__(header)
        self._limiter = limiter
        self._quota: MutationQuota = limiter.mutation_quota(strict=strict)
        self._made_by = made_by
        self._mutations: MutationRequest | None = None
        self._lookup = TopicLookup(header)
        self._charged: dict[TopicKey, int] = {}
        self._refused: dict[TopicKey, bytes] = {}

    def on_request(self, frame: bytearray, request: FilteredRequest, now_ms: int) -> Verdict:
        mutations = self._mutations
        if mutations is None:
            mutations = self._mutations = parse_mutation(frame, self._header)
            if not mutations.validate_only:
                self._lookup.about(mutations.keys)
        question = self._lookup.next()
        if question is not None:
            return SendRequest(frame=question)
        if mutations.validate_only:
            return Forward(frame=frame)
        kept = self._charge(mutations, now_ms)
        if len(kept) == len(mutations.keys):
            return Forward(frame=frame)
        if kept:
            topics = [frame[slice(*mutations.listed.spans[index])] for index in kept]
            return Forward(frame=with_elements(mutations.form, frame, mutations.listed, topics))
        self._throttle(request, now_ms)
        results = [self._refused[key] for key in mutations.keys]
        return Respond(frame=all_refused(*request.api, request.correlation_id, results))

    def on_response_to_own(
        self, frame: bytearray, request: FilteredRequest, now_ms: int
    ) -> Generator[None, None, None]:
        yield from self._lookup.taking_response(frame)

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
        """Charge the topics and refuse those over the quota, and return the indices of the others."""
        known, kept = self._lookup.known, list[int]()
        times, default = Counter(mutations.keys), self._made_by.cache.default_partitions
        for index, (key, wanted) in enumerate(zip(mutations.keys, mutations.partitions, strict=True)):
            cost = 0 if times[key] > 1 else _cost(mutations.api_key, wanted, known.get(key), default)
            refusal = self._quota.record(cost, now_ms) if cost else None
            if refusal is None:
                kept.append(index)
                if cost:
                    self._charged[key] = cost
                    self._charges.append((self._limiter, cost))
            else:
                self._made_by.counters.mutation_refusals += 1
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
                self._charges += self._made_by.auto_creations.withdraw(key, now_ms)
            if result.partitions is not None and result.partitions > 0:
                cost = result.partitions
                if wanted[key] == DEFAULT_PARTITIONS:
                    self._made_by.cache.default_partitions = cost
        self._made_by.counters.mutation_partitions += cost
        if cost != charged:
            self._limiter.record_without_throttle(cost - charged, now_ms)
            self._charges.append((self._limiter, cost - charged))

    def _throttle(self, request: FilteredRequest, now_ms: int) -> None:
        request.throttled(self._limiter, self._quota.throttle_ms(now_ms))


def _cost(api_key: int, wanted: int, known: KnownTopic | None, default_partitions: int) -> int:
    """Return the cost of a topic in partitions, by what the broker knows of it."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationFilterFactory:
    """The factory of mutation filters for one broker's connections."""

    quotas: BrokerQuotas
    rules: EnforcementRules
    cache: TopicCache
    auto_creations: AutoCreations
    counters: Counters

    @property
    def is_active(self) -> bool:
        return self.quotas.limits_mutations

    def make_filter(
        self, request: FilteredRequest, chunk: memoryview, header: RequestHeader
    ) -> RequestFilter | NotFiltered:
        client = request.client
        if client is None or client.mutation.bound is None:
            return NotFiltered.STREAMS
        check_topic_request(header)
        strict = self.rules.refuses_mutations(*request.api) and not client.is_shadow
        return MutationFilter(header, client.mutation, strict=strict, made_by=self)
