"""The charges of a request and its response, and the throttle time that follows from them.

A request is charged to every quota that it counts for; the client waits once, for the longest throttle time.

**Source:** KIP-124, KIP-219; `KafkaApis.handleProduceRequest`, `handleFetchRequest`, `RequestHandlerHelper` (4.x): a
client gets the larger of two throttle times; a broker records time on network threads without a check, and the next
check includes it.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from kafka_quotas.core.metrics.throttle_time import nanos_to_percentage
from kafka_quotas.core.quotas.quota_charges import RESPONSE_BYTES, CostModel
from kafka_quotas.core.quotas.quota_manager import Limiter, QuotaType
from kafka_quotas.enforcement.event_log.charges import OnCharge
from kafka_quotas.enforcement.quotas.client_limits import ClientLimits
from kafka_quotas.enforcement.session.in_flight import InFlightRequest
from kafka_quotas.enforcement.session.session_state import SessionState
from kafka_quotas.enforcement.telemetry.counters import Counters
from kafka_quotas.enforcement.telemetry.throttle_stats import ThrottleStats

_NANOS_PER_US: Final = 1000
_NANOS_PER_MS: Final = 1_000_000
MAX_REFUSED: Final = 10
"""Requests refused within a window before their client is delayed instead, so that no more of its bytes are taken."""


@dataclass(slots=True, kw_only=True, eq=False)
class QuotaAccounting:
    """The charging of all requests of one connection."""

    state: SessionState
    throttle_stats: ThrottleStats
    counters: Counters
    costs: Callable[[], CostModel]
    on_charge: OnCharge | None
    """Receives each charge for the event log, None without one."""
    _refused_ms: deque[int] = field(default_factory=lambda: deque(maxlen=MAX_REFUSED), init=False)
    _delays_until_ms: int = field(default=0, init=False)

    def charged(
        self, request: InFlightRequest, client: ClientLimits, limiter: Limiter, throttle_ms: int, now_ms: int
    ) -> None:
        """Apply the throttle time of a request whose bytes a limiter has recorded, and log the charge."""
        if throttle_ms > 0:
            throttle_ms = self._violated(request, client, limiter, throttle_ms, now_ms)
        self._log_charge(request, limiter, request.frame_length, throttle_ms, now_ms)

    def charge_fetch(self, request: InFlightRequest, client: ClientLimits, amount: int, now_ms: int) -> None:
        """Record the bytes of a response with records, and set the request's throttle time."""
        turn, wait_ms = self.state.turn, 0
        queue = turn.queue if turn.request is request else None
        if queue is not None:
            wait_ms = queue.answered(turn, amount, now_ms)
        throttle_ms = client.fetch.record(amount, now_ms) if amount else 0
        if queue is not None and throttle_ms > 0:
            throttle_ms = queue.throttle_ms(throttle_ms, now_ms)
        if throttle_ms > 0:
            throttle_ms = self._violated(request, client, client.fetch, throttle_ms, now_ms)
        if amount:
            self._log_charge(request, client.fetch, amount, throttle_ms, now_ms)
        if wait_ms:
            request.throttled(client.fetch, wait_ms)
        elif not client.empties_fetches:
            request.session_id = None  # it is delivered

    def unrecord_fetch(self, request: InFlightRequest, client: ClientLimits, amount: int, now_ms: int) -> None:
        """Give back the bytes of a response that lost its records."""
        client.fetch.unrecord(amount, now_ms)
        self._log_charge(request, client.fetch, -amount, 0, now_ms)

    def charge_request(self, request: InFlightRequest, client: ClientLimits, now_ms: int) -> None:
        """Record one request, and its estimated time on an I/O thread of the broker."""
        if client.request_rate.bound is not None:
            self._charge(request, client, client.request_rate, 1, now_ms)
        # A broker reads the data of a fetch when it makes the response: `charge_response` charges that time.
        if request.api_key not in RESPONSE_BYTES and client.request_time.bound is not None:
            self._charge_time(request, client, now_ms)

    def count_exempt(self, request: InFlightRequest) -> None:
        """Count the estimated time of a request that is exempt from the request quota.

        Source:
            KIP-124; `ClientRequestQuotaManager.maybeRecordExempt` (4.x), which counts while any client has a quota of
            this type.
        """
        nanos = self.costs().request_nanos(request.api_key, request.frame_length)
        self.counters.exempt_request_us += int(nanos / _NANOS_PER_US)

    def charge_response(self, request: InFlightRequest, client: ClientLimits, length: int, now_ms: int) -> None:
        """Record the time of a response on a network thread, and charge the time of a fetch."""
        if client.request_time.bound is None:
            return
        nanos = self.costs().response_nanos(request.api_key, length)
        if request.exempt:
            self.counters.exempt_request_us += int(nanos / _NANOS_PER_US)
        else:
            # KIP-124: time on network threads is recorded without a check; the client's next request is throttled.
            client.request_time.record_without_throttle(nanos_to_percentage(nanos), now_ms)
        if request.api_key in RESPONSE_BYTES:
            self._charge_time(request, client, now_ms)

    def _charge_time(self, request: InFlightRequest, client: ClientLimits, now_ms: int) -> None:
        nanos = self.costs().request_nanos(request.api_key, request.frame_length)
        throttle_ms, limiter = 0, client.request_time
        # `count_exempt` has counted an exempt request already; the event log has it all the same.
        if not request.exempt:
            throttle_ms = limiter.record(nanos_to_percentage(nanos), now_ms)
            if throttle_ms > 0:
                throttle_ms = self._violated(request, client, limiter, throttle_ms, now_ms)
        self._log_charge(request, limiter, nanos / _NANOS_PER_MS, throttle_ms, now_ms)

    def _charge(
        self, request: InFlightRequest, client: ClientLimits, limiter: Limiter, amount: int, now_ms: int
    ) -> None:
        throttle_ms = limiter.record(amount, now_ms)
        if throttle_ms > 0:
            throttle_ms = self._violated(request, client, limiter, throttle_ms, now_ms)
        self._log_charge(request, limiter, amount, throttle_ms, now_ms)

    def _log_charge(
        self, request: InFlightRequest, limiter: Limiter, amount: float, throttle_ms: int, now_ms: int
    ) -> None:
        if self.on_charge is not None:
            quota_type = limiter.quota_type
            is_exempt = request.exempt and quota_type is QuotaType.REQUEST
            who = (now_ms, limiter.user, limiter.client_id)
            self.on_charge((*who, quota_type, request.api_key, amount, throttle_ms, is_exempt))

    def _violated(
        self, request: InFlightRequest, client: ClientLimits, limiter: Limiter, throttle_ms: int, now_ms: int
    ) -> int:
        """Throttle the client for a violated quota, as its policy says, and return the throttle time.

        Returns:
            At most the policy's maximum; 0 in shadow mode, or if the next request is refused instead.
        """
        is_refusable = client.refuses and request.expects_response and limiter in (client.produce, client.fetch)
        delays = is_refusable and self.is_refused_often(now_ms)
        if delays:  # until it rests: each window would have its refusals otherwise
            window = limiter.manager.window
            self._delays_until_ms = now_ms + throttle_ms + window.samples * window.window_ms
        elif client.max_throttle_ms is not None:
            throttle_ms = min(throttle_ms, client.max_throttle_ms)
        if client.is_shadow:
            self.throttle_stats.shadowed(limiter.quota_type, limiter, throttle_ms)
            return 0
        # An error needs a response to carry it: the next Produce with acks=0 could not be refused, so it is delayed.
        if is_refusable and client.refuses_at_once and not delays:
            return 0
        request.throttled(limiter, throttle_ms)
        return throttle_ms

    def refused(self, limiter: Limiter, wait_ms: int, now_ms: int) -> bool:
        """Count a request that is refused instead of being delayed for `wait_ms`.

        Returns:
            Whether its client is muted all the same, because it was refused too often.
        """
        self.counters.refused_requests += 1
        self.throttle_stats.refused(limiter, wait_ms)
        recent_ms, window = self._refused_ms, limiter.manager.window
        recent_ms.append(now_ms)
        span_ms = window.samples * window.window_ms
        if len(recent_ms) == MAX_REFUSED and now_ms - recent_ms[0] < span_ms:
            self._delays_until_ms = now_ms + wait_ms + span_ms
        return self.is_refused_often(now_ms)

    def is_refused_often(self, now_ms: int) -> bool:
        """Return whether the client is delayed, not refused, until it was within its quotas for a window."""
        return now_ms < self._delays_until_ms

    def held(self, limiter: Limiter, held_ms: int, now_ms: int) -> None:
        """Count the time for which a Fetch waited for room in its bucket as a throttle time."""
        self.throttle_stats.throttled(limiter.quota_type, limiter, held_ms, now_ms)

    def apply_policy(self, request: InFlightRequest, now_ms: int) -> None:
        """Apply the client's policy to the throttle time that a filter set, and log the filter's charges."""
        # A filter knows limiters, not policies: what it asked for is capped, or only counted, here.
        client, limiter = request.client, request.throttled_by
        throttle_ms, request.throttle_ms = request.throttle_ms, 0
        if client is not None and limiter is not None and throttle_ms > 0:
            throttle_ms = self._violated(request, client, limiter, throttle_ms, now_ms)
        if self.on_charge is not None and request.filter is not None:
            for charged, amount in request.filter.charges():
                self._log_charge(request, charged, amount, throttle_ms if charged is limiter else 0, now_ms)

    def heed_upstream(self, request: InFlightRequest, upstream_ms: int) -> None:
        """Take note of a throttle time that the broker set, and count it if the daemon limits the client too."""
        limiter = request.accountable
        if upstream_ms <= 0 or limiter is None:
            return  # the client counts for nothing here, and waits by itself for what the broker wrote
        if limiter.bound is not None:
            self.throttle_stats.throttled_upstream(limiter.quota_type, limiter, upstream_ms)
        request.upstream_ms = upstream_ms

    def settle(self, request: InFlightRequest, now_ms: int) -> None:
        """Mute the client for a request's throttle time, and let the request begin that awaited its response.

        Source:
            KIP-219: the throttle time starts when the response goes out; `SocketServer` mutes the channel until its
            end.
        """
        # A response that was delayed has had its throttle time already.
        if request.throttle_ms and not request.delayed:
            self.count(request, now_ms)
            self.state.throttle(request, now_ms)
        self.state.answered(request, now_ms)

    def count(self, request: InFlightRequest, now_ms: int) -> None:
        """Count a throttle time for the limiter that set it."""
        limiter = request.throttled_by
        if limiter is not None:
            self.throttle_stats.throttled(limiter.quota_type, limiter, request.throttle_ms, now_ms)
