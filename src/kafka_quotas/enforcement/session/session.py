"""One client connection and its upstream connection: bytes in, bytes out, and when they may move.

No I/O and no clock: the shell feeds the bytes that it read, writes those in `to_upstream` and `to_client`, may stop
reading a side while bytes of it wait, and calls `wake` at `wake_at_ms`. `state` is one of `flow.ConnectionState`.

How the session enforces quotas, as a broker would on this connection:

- It charges a Produce request with its length after its last byte, and passes it on. If the request takes the client
  over its quota no byte after it passes until its response has gone out and the throttle time has ended.
- It charges a Fetch response with its length after its head, and delivers it; the throttle time starts then. While a
  client has a fetch limit, what it sends after a Fetch waits for that decision: pipelining gains nothing. A broker does
  the same with every request.
- It charges nothing before the broker has authenticated the client, or has answered a request that only clients that it
  serves get answered: see `principal`.
- It counts requests and estimates their time when they end, for a client with a limit on either.
- The response carries the larger of the broker's throttle time and ours, in the versions that have the field.

The parts: `request_classifier` decides about a request from its first bytes and makes its `InFlightRequest`;
`request_handler` and `response_handler` take requests and responses through, `produce_fast_path` those like the last
one; `quota_accounting` charges them; `flow` is the state that they share. A module that has to see whole requests of an
API registers a `request_filter.FilterFactory` for it and changes none of these.

**Source:** KIP-219; `KafkaApis.handleProduceRequest`, `handleFetchRequest`, `SocketServer` (4.x).
"""

from collections.abc import Callable, Mapping

from kafka_quotas.core.quotas.cost_model import CostModel
from kafka_quotas.enforcement.config.rules import MAX_QUEUED_REQUEST_BYTES, EnforcementRules, ThrottleStyle
from kafka_quotas.enforcement.event_log.charges import OnCharge
from kafka_quotas.enforcement.quotas.broker_quotas import BrokerQuotas
from kafka_quotas.enforcement.session.flow import ConnectionState, SessionState, ThrottledChannel
from kafka_quotas.enforcement.session.frame_stream import FrameStream
from kafka_quotas.enforcement.session.gathering import GatherBudget
from kafka_quotas.enforcement.session.principal import PrincipalTracker
from kafka_quotas.enforcement.session.produce_fast_path import ProduceFastPath
from kafka_quotas.enforcement.session.quota_accounting import QuotaAccounting
from kafka_quotas.enforcement.session.request_classifier import RequestClassifier
from kafka_quotas.enforcement.session.request_filter import NO_FILTERS, FilterFactory
from kafka_quotas.enforcement.session.request_handler import RequestHandler
from kafka_quotas.enforcement.session.response_handler import ResponseHandler
from kafka_quotas.enforcement.telemetry.counters import Counters
from kafka_quotas.enforcement.telemetry.throttle_stats import ThrottleStats
from kafka_quotas.wire.codec.skip import Buffer
from kafka_quotas.wire.passing.broker_addresses import Translate


class Session:
    """The enforcement of quotas on one client connection and its upstream connection."""

    def __init__(
        self,
        *,
        quotas: BrokerQuotas,
        identity: PrincipalTracker,
        rules: EnforcementRules,
        translate: Translate,
        ledger: ThrottleStats,
        counters: Counters,
        costs: Callable[[], CostModel],
        on_charge: OnCharge | None = None,
        claims: Mapping[int, FilterFactory] = NO_FILTERS,
        gathering: GatherBudget | None = None,
    ) -> None:
        self._identity = identity
        self.flow = flow = SessionState(max_in_flight=rules.max_in_flight)
        """The shared state, which the shell reads directly because it does so for each read."""
        charging = QuotaAccounting(flow, ledger=ledger, counters=counters, costs=costs, on_charge=on_charge)
        responses = ResponseHandler(
            flow,
            identity=identity,
            charging=charging,
            translate=translate,
            delays=rules.throttle_style is ThrottleStyle.DELAY,
            serves=rules.serves,
        )
        self._intake = intake = RequestClassifier(
            quotas=quotas, identity=identity, rules=rules, on_refused=charging.refused, claims=claims
        )
        self.gathering = (gathering or GatherBudget(MAX_QUEUED_REQUEST_BYTES)).share()
        """Its share of the memory for gathered requests; the shell sets the callbacks."""
        self._side = RequestHandler(
            flow, intake, identity=identity, charging=charging, responses=responses, room=self.gathering
        )
        flow.requests = FrameStream(self._side.begin, self._side.end, flow.to_upstream)
        flow.responses = FrameStream(responses.begin, responses.end, flow.to_client)
        self.shortcut = ProduceFastPath(flow, intake, self._side, charging=charging)
        """The fast path, which the shell offers each read to first; the following two take the rest."""
        self.from_client = flow.requests.feed
        """(chunk, now_ms, end of what the fast path took) -> None, for bytes of the client; raises `ProtocolError`
        where the daemon can't handle them."""
        self.from_upstream = flow.responses.feed
        """(chunk, now_ms, end as above) -> None, for bytes of the broker; raises `ProtocolError` where they answer no
        request."""

    @property
    def to_upstream(self) -> list[Buffer]:
        """Bytes for the broker, in order.

        The shell writes and clears them. Views are into the chunks that it fed.
        """
        return self.flow.to_upstream

    @property
    def to_client(self) -> list[Buffer]:
        """Bytes for the client, in order.

        The shell writes and clears them. Views are into the chunks that it fed.
        """
        return self.flow.to_client

    @property
    def state(self) -> ConnectionState:
        """The handling of the client's next request."""
        return self.flow.state

    @property
    def wake_at_ms(self) -> int | None:
        """The time to call `wake` (ms), None for never."""
        return self.flow.wake_at_ms

    @property
    def mute(self) -> ThrottledChannel | None:
        """The throttle time that the client waits for, None if it doesn't."""
        return self.flow.mute

    @property
    def request_count(self) -> int:
        """The number of requests that were received to their end."""
        return self._side.count

    @property
    def principal(self) -> str:
        """The principal of the client, as far as it is known by now."""
        return self._identity.principal

    @property
    def unanswered(self) -> int:
        """The number of requests that wait for their response, or for its end."""
        return len(self.flow.in_flight)

    @property
    def mid_request(self) -> bool:
        """Whether the bytes of the client so far end within a request."""
        return self.flow.requests.mid_frame or self.flow.requests.rest_bytes > 0

    @property
    def drained(self) -> bool:
        """Whether the client has got the response to every request that has begun."""
        return not (self.flow.in_flight or self.flow.requests.mid_frame)

    @property
    def wants_answers(self) -> bool:
        """Whether the client expects a response to every request so far.

        Then dropping what is unread of a client that has left is safe: it got no response to it.
        """
        return self._intake.wants_answers

    @property
    def waiting_request_bytes(self) -> int:
        """Bytes of the client that wait because its next request may not begin."""
        return self.flow.requests.rest_bytes if self.flow.is_held else 0

    @property
    def waiting_response_bytes(self) -> int:
        """Bytes of the broker that wait because a response is delayed."""
        return self.flow.responses.rest_bytes if self.flow.is_delaying else 0

    def wake(self, now_ms: int) -> None:
        """End the throttle time if it is over by now."""
        self.flow.wake(now_ms)

    def unmute(self, now_ms: int) -> None:
        """End the throttle time that the client waits for, if any, before it is over."""
        if self.flow.wake_at_ms is not None:
            self.flow.wake_at_ms = now_ms
            self.wake(now_ms)

    def drain(self) -> None:
        """Let the request that has begun end, and no other begin."""
        self.flow.drain()

    def close(self) -> None:
        """Let no request begin any more, because both connections are closing."""
        self.flow.close()
