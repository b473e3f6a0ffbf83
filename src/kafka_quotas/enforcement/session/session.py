"""One client's connection and the broker's behind it: bytes in, bytes out, and when they may move.

No I/O and no clock: the shell feeds what it read, writes what it finds in `to_upstream` and `to_client`, may leave a
side unread while bytes of it wait, and calls `wake` at `wake_at_ms`. `state` is one of `flow.ConnectionState`.

How a client is held to its quotas, as a broker of this connection would do it:

- A Produce request is charged with its length when its last byte has been seen. It is always passed on. If it took the
  client over its quota no byte behind it passes until its response has gone out and the throttle time is over.
- A Fetch response is charged with its length when its head has been seen, and is delivered; the throttle time counts
  from then. While a client has a fetch limit, what it sends behind a Fetch waits for that decision, so that a client
  that pipelines gains nothing. A broker does the same with every request.
- Nothing is charged before the broker has let the client in, or has answered what it answers to those only that it
  serves: see `identity`.
- Requests are counted and timed (an estimate) when they end, where a client has a limit on that.
- The response carries the larger of the broker's throttle time and ours, in the versions that have the field.

The parts: `request_intake` decides about a request by its first bytes and makes its `exchange`; `request_side` and
`response_side` take them through, `shortcut` those that are like the last one; `charging` charges them; `flow` is the
state they share. Whoever has to see requests of an API as a whole registers a `whole_treatment.Claim` for it and needs
to change none of these.

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
    """The state of one connection pair."""

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
        """What is under way; for the shell, which reads it all the time."""
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
        """What its requests take of the room that there is for gathered ones; for the shell to listen to."""
        self._side = RequestHandler(
            flow, intake, identity=identity, charging=charging, responses=responses, room=self.gathering
        )
        flow.requests = FrameStream(self._side.begin, self._side.end, flow.to_upstream)
        flow.responses = FrameStream(responses.begin, responses.end, flow.to_client)
        self.shortcut = ProduceFastPath(flow, intake, self._side, charging=charging)
        """For the shell to offer each read to first; what it does not take is for the following two."""
        self.from_client = flow.requests.feed
        """(chunk, now_ms, offset behind what the shortcut took): takes what the client sent; raises `ProtocolError`
        where it is what we can't handle."""
        self.from_upstream = flow.responses.feed
        """(chunk, now_ms, offset as above): takes what the broker sent; raises `ProtocolError` where it answers no
        request of ours."""

    @property
    def to_upstream(self) -> list[Buffer]:
        """Bytes for the broker, in order; the shell writes and clears them. Views are into the chunks that were fed."""
        return self.flow.to_upstream

    @property
    def to_client(self) -> list[Buffer]:
        """Bytes for the client, likewise."""
        return self.flow.to_client

    @property
    def state(self) -> ConnectionState:
        """What the connection does with the client's next request."""
        return self.flow.state

    @property
    def wake_at_ms(self) -> int | None:
        """When `wake` is to be called, None for never."""
        return self.flow.wake_at_ms

    @property
    def mute(self) -> ThrottledChannel | None:
        """What the client waits for, None if it doesn't."""
        return self.flow.mute

    @property
    def request_count(self) -> int:
        """How many requests have ended."""
        return self._side.count

    @property
    def principal(self) -> str:
        """Who the client is, as far as it is known by now."""
        return self._identity.principal

    @property
    def unanswered(self) -> int:
        """How many requests wait for their response, or for its end."""
        return len(self.flow.in_flight)

    @property
    def mid_request(self) -> bool:
        """Whether the client stopped in the middle of a request, if nothing comes behind what it sent."""
        return self.flow.requests.mid_frame or self.flow.requests.rest_bytes > 0

    @property
    def drained(self) -> bool:
        """Whether every request that was begun has been answered."""
        return not (self.flow.in_flight or self.flow.requests.mid_frame)

    @property
    def wants_answers(self) -> bool:
        """Whether the client wanted a response to everything so far: then what it leaves unsent harms nobody."""
        return self._intake.wants_answers

    @property
    def waiting_request_bytes(self) -> int:
        """How many bytes of the client wait because its next request may not begin."""
        return self.flow.requests.rest_bytes if self.flow.is_held else 0

    @property
    def waiting_response_bytes(self) -> int:
        """How many bytes of the broker wait because a response is held back."""
        return self.flow.responses.rest_bytes if self.flow.is_delaying else 0

    def wake(self, now_ms: int) -> None:
        """Let go on what had to wait until now; called too early it does nothing."""
        self.flow.wake(now_ms)

    def unmute(self, now_ms: int) -> None:
        """End the throttle time that the client waits for, if it waits for one."""
        if self.flow.wake_at_ms is not None:
            self.flow.wake_at_ms = now_ms
            self.wake(now_ms)

    def drain(self) -> None:
        """Let the request that is being received end, and no other begin."""
        self.flow.drain()

    def close(self) -> None:
        """Let nothing begin any more: both connections end."""
        self.flow.close()
