"""Filters that refuse Produce and fetch requests, or single partitions of a Produce, with an error.

A client whose policy asks for errors gets one instead of a delay while it is over its byte rate. The broker never sees
the refused request, and its bytes count for no quota. The error is the one that brokers return for quotas, 89
`THROTTLING_QUOTA_EXCEEDED`, after which Java clients try again (librdkafka gives the records up); the throttle time is
the time until that makes sense. The daemon mutes the client for it only if it was refused too often: it would have to
take all that a client sends otherwise. A Fetch of a version without an error code of its own gets an empty response.

A refused Produce may have held a numbered batch. Until it comes again the daemon refuses the batches after it as out of
order: a broker that never saw the producer would take them first and refuse the earlier batch for good.
"""

from collections.abc import Sequence
from typing import Final

from kafka_quotas.core.quotas.quota_manager import Limiter
from kafka_quotas.enforcement.quotas.producer_sequences import ClientName, ProducerSequences
from kafka_quotas.enforcement.session.in_flight import FETCH, SHARE_FETCH, InFlightRequest
from kafka_quotas.enforcement.session.request_filter import Forward, RequestFilter, Respond, SendRequest, Verdict
from kafka_quotas.wire.codec.skip import Buffer
from kafka_quotas.wire.passing.fetch_request import NO_SESSION, fetch_session, final_fetch
from kafka_quotas.wire.passing.fetch_response import empty_fetch_response
from kafka_quotas.wire.passing.produce_request import PartitionKey, ProduceData, parse_produce, without_partitions
from kafka_quotas.wire.passing.produce_response import (
    all_refused_partitions,
    refused_partition,
    with_refused_partitions,
)
from kafka_quotas.wire.passing.share_fetch_response import refused_share_fetch
from kafka_quotas.wire.passing.throttle_time import patch_throttle
from kafka_quotas.wire.protocol.error_code import ErrorCode
from kafka_quotas.wire.protocol.header import RequestHeader

_FOLLOWS_REFUSED: Final = "an earlier batch of this producer was rejected"


def client_name(request: InFlightRequest) -> ClientName:
    """Return user and client-id of the client of a request that a filter sees."""
    assert request.client is not None
    return request.client.user, request.client.client_id


class PartialProduce:
    """The refused partitions of one Produce request, whose other partitions may pass."""

    def __init__(self, header: RequestHeader) -> None:
        self._header = header
        self._refused: dict[PartitionKey, bytes] = {}
        self._order: Sequence[PartitionKey] = ()

    def refuse(self, key: PartitionKey, error_code: int, message: str) -> None:
        """Refuse a partition with an error and a message for the client."""
        self._refused[key] = refused_partition(self._header.api_version, key[1], error_code=error_code, message=message)

    def refuse_following(self, key: PartitionKey) -> None:
        """Refuse a partition because its batch follows a refused one."""
        self.refuse(key, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, _FOLLOWS_REFUSED)

    def verdict(self, frame: Buffer, data: ProduceData, request: InFlightRequest) -> Verdict:
        """Return the request without the refused partitions, or a response if none are left."""
        self._order = data.order
        if not self._refused:
            return Forward(frame=frame)
        # The other partitions may pass: a broker too takes and refuses the partitions of one request apart.
        cut = without_partitions(frame, self._header, data, self._refused.__contains__)
        if cut is not None:
            return Forward(frame=cut)
        # A client with acks=0 gets no response, not even to a refused request.
        if not request.expects_response:
            return Respond(frame=None)
        version = request.api_version
        return Respond(frame=all_refused_partitions(version, request.correlation_id, self._order, self._refused))

    def response(self, frame: Buffer, request: InFlightRequest) -> Buffer:
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
        self._partial = PartialProduce(self._header)

    def on_request(self, frame: bytearray, request: InFlightRequest, now_ms: int) -> Verdict:
        data, client = parse_produce(frame, self._header), client_name(request)
        for topic in data.topics:
            for partition in topic.partitions:
                key, batch = (topic.topic, partition.partition), partition.sequenced
                if batch is None:
                    continue
                if self._sequences.follows_refused(client, key, batch, now_ms):
                    self._partial.refuse_following(key)
                    self._sequences.refused(client, key, batch, now_ms)
                else:
                    self._sequences.admitted(client, key, batch)
        return self._partial.verdict(frame, data, request)

    def on_response(self, frame: bytearray, request: InFlightRequest, now_ms: int) -> Buffer:
        return self._partial.response(frame, request)


class QuotaErrorFilter(RequestFilter):
    """The refusal of one Produce, Fetch or ShareFetch request.

    Args:
        limiter: The limiter that the client is over.
        wait_ms: The delay that the client would have had.
        sequences: Records the numbered batches that are refused.
        mutes: Whether the client is muted for the delay as well, because it was refused too often.
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

    def on_request(self, frame: bytearray, request: InFlightRequest, now_ms: int) -> Verdict:
        if self._mutes:
            request.throttled(self._limiter, self._wait_ms)
        if request.api_key == FETCH:
            # Versions before 7 have no error code of their own: their clients get an empty response.
            empty = empty_fetch_response(
                request.api_version,
                request.correlation_id,
                session_id=0,
                throttle_ms=self._wait_ms,
                error_code=ErrorCode.THROTTLING_QUOTA_EXCEEDED,
            )
            return Respond(frame=empty)
        if request.api_key == SHARE_FETCH:
            refused = refused_share_fetch(
                request.correlation_id, throttle_ms=self._wait_ms, error=ErrorCode.THROTTLING_QUOTA_EXCEEDED
            )
            return Respond(frame=refused)
        # The client should wait before it tries again.
        response = bytearray(self._refused_produce(frame, request, now_ms))
        patch_throttle(response, *request.api, self._wait_ms)
        return Respond(frame=bytes(response))

    def _refused_produce(self, frame: bytearray, request: InFlightRequest, now_ms: int) -> bytes:
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
    """The empty response to a Fetch whose bucket had no room for it in time.

    Args:
        header: The header of the request.
        limiter: The limiter of the bucket.
        wait_ms: The time after which the client should come again.
    """

    def __init__(self, header: RequestHeader, limiter: Limiter, wait_ms: int) -> None:
        super().__init__(header)
        self._limiter = limiter
        self._wait_ms = wait_ms
        self._has_ended_session = False

    def on_request(self, frame: bytearray, request: InFlightRequest, now_ms: int) -> Verdict:
        del now_ms
        session = fetch_session(frame, self._header)
        session_id = NO_SESSION if session is None else session[0]
        # The broker did not see the request, so its session would not go on: the client gets none, and makes a new one.
        if session_id != NO_SESSION and not self._has_ended_session:
            self._has_ended_session = True
            version, correlation_id, client_id = request.api_version, request.correlation_id, self._header.client_id
            return SendRequest(
                frame=final_fetch(version, session_id=session_id, correlation_id=correlation_id, client_id=client_id)
            )
        request.throttled(self._limiter, self._wait_ms)
        empty = empty_fetch_response(
            request.api_version, request.correlation_id, session_id=NO_SESSION, throttle_ms=self._wait_ms
        )
        return Respond(frame=empty)
