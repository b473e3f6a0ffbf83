"""Filters see whole requests and responses rather than their first bytes; those here refuse with an error.

The session gathers a filtered request and gives it to the filter after its last byte. The filter forwards it, unchanged
or changed, responds to it without the broker, or first sends the broker a request of its own, on the same connection
and before the filtered one. No byte of the client after the request passes until that is decided. The session also
gathers the response and gives it to the filter before the client sees it. No I/O and no clock, as in the session.
Frames are whole, including their length field.

A client whose policy asks for errors gets one instead of a delay while it is over its byte rate. The broker never sees
the refused request, and its bytes count for no quota. The error is the one that brokers return for quotas, 89
`THROTTLING_QUOTA_EXCEEDED`, after which Java clients retry (librdkafka gives the records up); the throttle time is the
time until that makes sense. The daemon mutes the client for it only if it was refused too often: it would have to take
all that a client sends otherwise. A Fetch of a version without an error code of its own gets an empty response.

A refused Produce may have held a numbered batch. Until it comes again the daemon refuses the batches after it as out of
order: a broker that never saw the producer would take them first and refuse the earlier batch for good.
"""

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol, TypeAlias

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.core.quotas.quota_manager import Limiter
from kafka_quotas.enforcement.quotas.broker_quotas import ClientLimits
from kafka_quotas.enforcement.quotas.producer_sequences import ClientName, ProducerSequences
from kafka_quotas.wire.codec.skip import Buffer
from kafka_quotas.wire.protocol.api_table import ErrorCode
from kafka_quotas.wire.protocol.header import RequestHeader
from kafka_quotas.wire.proxying.fetch_request import NO_SESSION, fetch_session, final_fetch
from kafka_quotas.wire.proxying.fetch_response import empty_fetch_response, refused_share_fetch
from kafka_quotas.wire.proxying.produce import (
    PartitionKey,
    ProduceData,
    Sequenced,
    all_refused_partitions,
    parse_produce,
    refused_partition,
    with_refused_partitions,
    without_partitions,
)
from kafka_quotas.wire.proxying.throttle_time import patch_throttle


class FilteredRequest(Protocol):
    """The fields of a request in flight that filters and their factories use."""

    api: tuple[int, int]
    api_key: int
    api_version: int
    correlation_id: int
    client: ClientLimits | None
    expects_response: bool
    blocks_next: bool

    def throttled(self, limiter: Limiter, throttle_ms: int) -> None:
        """Raise the throttle time to this limiter's if it is longer than the one so far."""


class Verdict(NamedTuple):
    """What becomes of a filtered request."""

    to_broker: Buffer | None
    """The request as the broker gets it, or one of the daemon's own; None if the daemon responds."""
    response: bytes | None = None
    """The daemon's response, which goes out in the order of the requests; None for a request without a response."""
    is_own: bool = False
    """Whether the broker first gets a request of the daemon's own, with the correlation id of the filtered one.

    `on_response_to_own` gets its response, which the client never sees, then the session calls `on_request` again.
    """


Charge: TypeAlias = tuple[Limiter, float]
"""(limiter, amount recorded in the unit of its quota); a negative amount was given back."""


class RequestFilter(ABC):
    """A filter of one request and its response, made when the request's header has been read.

    It may throttle the client with `request.throttled`.
    """

    charges_refused = True
    """Whether a Produce that the filter responds to counts for the byte rate, as one that a broker refuses does."""

    def __init__(self, header: RequestHeader) -> None:
        self._header = header._replace(start=0, end=header.end - header.start)
        self._charges: list[Charge] = []

    @abstractmethod
    def on_request(self, frame: bytearray, request: FilteredRequest, now_ms: int) -> Verdict:
        """Decide about the whole request."""

    def on_response_to_own(  # noqa: B027 - most filters send no request
        self, frame: bytearray, request: FilteredRequest, now_ms: int
    ) -> Generator[None, None, None] | None:
        """Take the broker's response to the last request of our own, at once or in slices."""

    def on_response(
        self, frame: bytearray, request: FilteredRequest, now_ms: int
    ) -> Buffer | Generator[None, None, Buffer]:
        """Return the response for the client, before the session rewrites addresses and the throttle time.

        Where many elements have to be read, it is a generator that yields between slices of a millisecond.
        """
        del request, now_ms
        return frame

    def charges(self) -> Sequence[Charge]:
        """Return the charges since the last call, for the event log."""
        charges, self._charges = self._charges, []
        return charges


class FilterFactory(Protocol):
    """The choice, from a request's first bytes, whether one API's request is filtered.

    A session has one factory per filtered API (`Session(factories=...)`); connections may share them.
    """

    @property
    def is_active(self) -> bool:
        """Whether any request may need a filter at the moment.

        The session reads it for each request of the API, so it must be cheap.
        """
        ...

    def make_filter(self, request: FilteredRequest, chunk: memoryview, header: RequestHeader) -> RequestFilter | None:
        """Return the filter of the request that starts at `header.start` of the chunk, None to let it stream.

        The chunk may hold only the first part of the request. `request.client` has the limiters and the policy of the
        client. What the client sends after a filtered request waits until its response has passed; the factory may
        reset `request.blocks_next` if no throttle time can come of the request.
        """
        ...


class ProduceProtection(FilterFactory):
    """A factory of Produce filters that needs to see which topic each request is for, and no more of most."""

    inner: FilterFactory | None

    @abstractmethod
    def harmless_until(self, chunk: memoryview, header: RequestHeader) -> int | None:
        """Return the end of the bytes that show that a Produce needs no check, None if they don't."""


MAX_TOPIC_REQUEST_BYTES: Final = 2 * 1024 * 1024
"""Longest request about topics that is gathered: about 10,000 topics of some 200 bytes each."""


def check_topic_request(header: RequestHeader) -> None:
    """Check that a request about topics is short enough to be gathered.

    Its version is one that the daemon reads: the session has refused any other (`in_flight.response_action`).
    """
    if header.frame_length > MAX_TOPIC_REQUEST_BYTES:
        raise ProtocolError(
            f"a request of API {header.api_key} announces {header.frame_length} bytes, "
            f"{MAX_TOPIC_REQUEST_BYTES} are the limit where its topics count for a quota",
            hint="name fewer topics at a time",
        )


NO_FILTERS: Final[Mapping[int, FilterFactory]] = MappingProxyType({})
"""API key -> filter factory, without any."""


def client_name(request: FilteredRequest) -> ClientName:
    """Return user and client-id of the client of a request that a filter sees."""
    assert request.client is not None
    return request.client.user, request.client.client_id


class PartialProduce:
    """The refused partitions of one Produce request. The others may pass."""

    def __init__(self, header: RequestHeader, sequences: ProducerSequences) -> None:
        self._header = header
        self._sequences = sequences
        self._refused: dict[PartitionKey, bytes] = {}
        self._order: Sequence[PartitionKey] = ()

    def refuse(self, key: PartitionKey, error_code: int, message: str) -> None:
        """Refuse a partition with an error and a message for the client."""
        self._refused[key] = refused_partition(self._header.api_version, key[1], error_code=error_code, message=message)

    def follows_refused(self, client: ClientName, key: PartitionKey, batch: Sequenced | None, now_ms: int) -> bool:
        """Refuse a partition if its batch follows a refused one, and return whether it does."""
        if batch is None or not self._sequences.follows_refused(client, key, batch, now_ms):
            return False
        self.refuse(key, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "an earlier batch of this producer was rejected")
        self._sequences.refused(client, key, batch, now_ms)
        return True

    def verdict(self, frame: Buffer, data: ProduceData, request: FilteredRequest) -> Verdict:
        """Return the request without the refused partitions, or a response if none are left."""
        self._order = data.order
        if not self._refused:
            return Verdict(frame)
        # The other partitions may pass: a broker too takes and refuses the partitions of one request apart.
        cut = without_partitions(frame, self._header, data, self._refused.__contains__)
        if cut is not None:
            return Verdict(cut)
        # A client with acks=0 gets no response, not even to a refused request.
        if not request.expects_response:
            return Verdict(None, None)
        version = request.api_version
        return Verdict(None, all_refused_partitions(version, request.correlation_id, self._order, self._refused))

    def response(self, frame: Buffer, request: FilteredRequest) -> Buffer:
        """Return the response with the results of the refused partitions added."""
        if not self._refused:
            return frame
        return with_refused_partitions(request.api_version, frame, self._order, self._refused)


class SequenceFilter(RequestFilter):
    """The order of numbered batches in one Produce request of a client that gets errors.

    It refuses the partitions whose batch follows a refused one.
    """

    # A request that is refused whole counts for nothing, as one that `QuotaErrorFilter` refuses.
    charges_refused = False

    def __init__(self, header: RequestHeader, sequences: ProducerSequences) -> None:
        super().__init__(header)
        self._sequences = sequences
        self._partial = PartialProduce(self._header, sequences)

    def on_request(self, frame: bytearray, request: FilteredRequest, now_ms: int) -> Verdict:
        data, client = parse_produce(frame, self._header), client_name(request)
        for topic in data.topics:
            for partition in topic.partitions:
                key, batch = (topic.topic, partition.partition), partition.sequenced
                if batch is not None and not self._partial.follows_refused(client, key, batch, now_ms):
                    self._sequences.admitted(client, key, batch)
        return self._partial.verdict(frame, data, request)

    def on_response(self, frame: bytearray, request: FilteredRequest, now_ms: int) -> Buffer:
        return self._partial.response(frame, request)


class QuotaErrorFilter(RequestFilter):
    """The refusal of a Produce, Fetch or ShareFetch that would have had to wait for `wait_ms`.

    With `mutes` its client is muted for that time as well, because it was refused too often.
    """

    charges_refused = False

    def __init__(
        self, header: RequestHeader, limiter: Limiter, wait_ms: int, sequences: ProducerSequences, *, mutes: bool
    ) -> None:
        super().__init__(header)
        self._limiter = limiter
        self._wait_ms = wait_ms
        self._sequences = sequences
        self._mutes = mutes

    def on_request(self, frame: bytearray, request: FilteredRequest, now_ms: int) -> Verdict:
        if self._mutes:
            request.throttled(self._limiter, self._wait_ms)
        if request.api_key == ApiKey.FETCH:
            # Versions before 7 have no error code of their own: their clients get an empty response.
            empty = empty_fetch_response(
                request.api_version,
                request.correlation_id,
                session_id=0,
                throttle_ms=self._wait_ms,
                error=ErrorCode.THROTTLING_QUOTA_EXCEEDED,
            )
            return Verdict(None, empty)
        if request.api_key == ApiKey.SHARE_FETCH:
            refused = refused_share_fetch(
                request.correlation_id, throttle_ms=self._wait_ms, error=ErrorCode.THROTTLING_QUOTA_EXCEEDED
            )
            return Verdict(None, refused)
        # The client should wait before it tries again.
        response = bytearray(self._refused_produce(frame, request, now_ms))
        patch_throttle(response, *request.api, self._wait_ms)
        return Verdict(None, bytes(response))

    def _refused_produce(self, frame: bytearray, request: FilteredRequest, now_ms: int) -> bytes:
        data, client = parse_produce(frame, self._header), client_name(request)
        for topic in data.topics:
            for partition in topic.partitions:
                # Later batches of this producer have to wait until this one comes again.
                if partition.sequenced is not None:
                    self._sequences.refused(client, (topic.topic, partition.partition), partition.sequenced, now_ms)
        message = f"{self._limiter.quota_type.key.name} of {self._limiter.entity} is exceeded for {self._wait_ms} ms"
        refused = {
            key: refused_partition(
                request.api_version, key[1], error_code=ErrorCode.THROTTLING_QUOTA_EXCEEDED, message=message
            )
            for key in data.order
        }
        return all_refused_partitions(request.api_version, request.correlation_id, data.order, refused)


class EmptyFetchFilter(RequestFilter):
    """The empty response to a Fetch that waited for room in its bucket in vain."""

    def __init__(self, header: RequestHeader, limiter: Limiter, wait_ms: int) -> None:
        super().__init__(header)
        self._limiter = limiter
        self._wait_ms = wait_ms
        self._has_ended_session = False

    def on_request(self, frame: bytearray, request: FilteredRequest, now_ms: int) -> Verdict:
        del now_ms
        session = fetch_session(frame, self._header)
        session_id = NO_SESSION if session is None else session[0]
        # The broker did not see the request, so its session would not go on: the client gets none, and makes a new one.
        if session_id != NO_SESSION and not self._has_ended_session:
            self._has_ended_session = True
            version, correlation_id, client_id = request.api_version, request.correlation_id, self._header.client_id
            own = final_fetch(version, session_id=session_id, correlation_id=correlation_id, client_id=client_id)
            return Verdict(own, is_own=True)
        request.throttled(self._limiter, self._wait_ms)
        empty = empty_fetch_response(
            request.api_version, request.correlation_id, session_id=NO_SESSION, throttle_ms=self._wait_ms
        )
        return Verdict(None, empty)
