"""One client's connection and one broker's, and the session between them: the I/O that the session does not do.

The broker is connected to when the client has sent what starts like a request, or all of one that is looked at as a
whole: a client that only opens connections, or can't agree on TLS, costs the broker nothing.
What is read is written to the other side as it is, views into it and never copies. A side is left unread while the
other does not take its bytes, or as soon as it has sent what its session lets wait: a client that waits by itself is
still read, so its end is seen.
"""

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from typing import Final

from kafka_quotas.core.errors import KafkaQuotasError, ProtocolError
from kafka_quotas.enforcement.proxy.brokers import Reroute, UpstreamConfig, UpstreamError, connect_any
from kafka_quotas.enforcement.proxy.context import ServerContext
from kafka_quotas.enforcement.proxy.transport import UNACKNOWLEDGED_MS, Transport
from kafka_quotas.enforcement.session.frames import GATHER_MS
from kafka_quotas.enforcement.session.session import Session
from kafka_quotas.enforcement.session.state import CLOSED, DRAINING, THROTTLED
from kafka_quotas.enforcement.telemetry.log import LogEvent, LogLevel, error_text

LINGER_S: Final = 2.0
"""Seconds that a broker gets to take the last requests after their client has left."""
_OVERDUE: Final = KafkaQuotasError(
    f"this took longer than {GATHER_MS // 1000} s, and others wait", hint="see --queued-max-request-bytes"
)
_LOST: Final = KafkaQuotasError("nothing was acknowledged for minutes")


class ProxiedConnection:
    """A client's connection, its broker's, and the session between the two.

    Args:
        on_closed: Called once, when both connections have ended.
        on_client: Called with the client's transport when its connection is made.
    """

    def __init__(
        self,
        context: ServerContext,
        session: Session,
        *,
        peer: str,
        on_closed: Callable[["ProxiedConnection"], None],
        on_client: Callable[[asyncio.Transport], None] | None = None,
    ) -> None:
        self.session, self._state = session, session.state
        self.peer = peer
        self._context = context
        self._now_ms = context.clock.now_ms
        self._counters = context.counters
        self._on_closed = on_closed
        full = partial(self._full, session.state.pause_responses, session.state.resume_responses)
        self._client = Transport(received=self._from_client, full=full, gone=self._client_gone, made=on_client)
        full = partial(self._full, session.state.pause_requests, session.state.resume_requests)
        self._upstream = Transport(received=self._from_upstream, full=full, gone=self._upstream_gone)
        self._reroute: Reroute | None = None
        self._opening: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms: int | None = None
        self.upstream_config: UpstreamConfig | None = None
        self.max_idle_ms: int | None = None
        """Longest time without a byte before the connection is closed, None for no limit."""
        self._has_moved = True
        """Whether bytes came from either side since the last `look`."""
        self._quiet_since_ms = 0
        self._is_reaching = False
        """Whether a connection to the broker was started."""
        session.gathering.on_room = partial(self._resume_soon, self._state.resume_gathering)
        session.gathering.on_overdue = partial(self._overdue, is_request=True)
        session.answers.on_room = partial(self._resume_soon, self._state.resume_response)
        session.answers.on_overdue = partial(self._overdue, is_request=False)
        self._is_at_work = False  # whether `_work` is called again and again
        self._state.turn.on_turn = partial(self._resume_soon, self._state.resume_held)
        self._watched_fd: int | None = None
        self._is_unsteady = False
        """Whether a side was paused, or the connection drained, at the last `_follow`: it may have to change back."""

    def open(self, client: socket.socket, config: UpstreamConfig, reroute: Reroute) -> None:
        """Serve an accepted connection."""
        self.upstream_config = config
        self._reroute = reroute
        self._opening = self._context.loop.create_task(self._open(client, config))

    def look(self, now_ms: int) -> None:
        """Record whether anything moved since the last look, and end an idle or half-dead connection."""
        state = self._state
        if self._has_moved:
            self._has_moved = False
            self._quiet_since_ms = now_ms
            return
        # A broker that takes no bytes leaves a client unread too often for a watch each time. A client that left may
        # have sent requests that ask for no response, which the broker has to get.
        if self._client.is_paused and state.expects_all_responses and self._client.has_peer_left():
            self._client.abort()
        quiet_ms = now_ms - self._quiet_since_ms
        # Throttled clients are not idle: the daemon keeps them waiting.
        waits = state.mute is not None or state.held is not None
        if self.max_idle_ms is not None and quiet_ms >= self.max_idle_ms and not (self._is_closing or waits):
            self.close()
            self._counters.connections_expired += 1
        is_due = quiet_ms >= UNACKNOWLEDGED_MS and not self._is_closing
        if is_due and (self._client.lost_peer() or self._upstream.lost_peer()):
            self._fail("connection closed: a peer does not answer any more", _LOST, LogLevel.WARNING)
            self.abort()

    def drain(self) -> None:
        """Close the connection after its last request is answered."""
        self._state.drain()
        self._follow()

    def unmute(self) -> None:
        """End the throttle time of the client."""
        self._resume(self._state.unmute)

    def close(self) -> None:
        """End both connections, once, after their peers have taken what was sent."""
        if self._is_closing:
            return
        self._state.close()
        self.session.end(self._now_ms())
        self._watch(wanted=False)
        if self._timer is not None:
            self._timer.cancel()
        opened = self._upstream if self._is_reaching else self._client
        # uvloop calls no `connection_lost` on a connection that is made when its waiter is cancelled.
        if self._opening is not None and opened.is_gone:
            self._opening.cancel()
        self._client.close()
        self._upstream.close()
        self._check_closed()

    @property
    def _is_closing(self) -> bool:
        return self._state.phase is CLOSED

    def abort(self) -> None:
        """End both connections now."""
        self.close()
        self._client.abort()
        self._upstream.abort()

    async def _open(self, client: socket.socket, config: UpstreamConfig) -> None:
        """Agree on TLS with the client, if the listener has TLS, and read from it."""
        error: OSError | None = None
        try:
            await self._context.loop.connect_accepted_socket(
                lambda: self._client,
                client,
                ssl=config.client_tls,
                ssl_handshake_timeout=None if config.client_tls is None else config.timeout_s,
            )
        except asyncio.CancelledError:
            self._client.forget()
            raise
        except OSError as caught:
            error = caught
        finally:
            if not self._is_reaching:  # its first bytes may have come with the handshake
                self._opening = None
            if self._client.is_gone:
                client.close()
            self._check_closed()
        if error is None:
            self._follow()
        elif config.client_tls is not None and not self._is_closing:
            reason = getattr(error, "reason", None) or str(error) or type(error).__name__
            self._fail("client closed: TLS failed", KafkaQuotasError(reason), LogLevel.WARNING)
        else:
            self.close()  # the client is gone already

    def _reach(self) -> None:
        assert self.upstream_config is not None
        self._is_reaching = True
        self._upstream.write = self._state.to_upstream.append
        self._state.pause_requests()
        self._follow()
        self._opening = self._context.loop.create_task(self._connect(self.upstream_config))

    async def _connect(self, config: UpstreamConfig) -> None:
        error: UpstreamError | None = None
        assert self._reroute is not None
        try:
            self.upstream_config = await connect_any(lambda: self._upstream, config, self._reroute)
        except asyncio.CancelledError:
            self._upstream.forget()
            raise
        except UpstreamError as caught:
            error = caught
        finally:
            self._opening = None
            self._check_closed()
        if error is not None:
            self._fail("upstream can't be connected", error, LogLevel.ERROR)
        elif self._client.is_gone:
            self._upstream.send(self._state.to_upstream)  # what it sent last
            self._upstream.finish()
        else:
            self._resume(self._state.resume_requests)

    def _from_client(self, data: bytes) -> None:
        self._counters.request_bytes += len(data)
        self._has_moved = True
        try:
            if self.session.receive_from_client(data, self._now_ms()):
                self._upstream.write(data)
            else:
                self._move()
        except Exception as error:  # noqa: BLE001 - a defect costs this connection, not the others
            self._end_by(error)

    def _from_upstream(self, data: bytes) -> None:
        if self._client.is_gone:
            return
        self._counters.response_bytes += len(data)
        self._has_moved = True
        try:
            passed = self.session.pass_from_broker(data)
            if passed == len(data):
                self._client.write(data)
            else:
                self.session.receive_from_broker(data, self._now_ms(), passed)
                self._move()
        except Exception as error:  # noqa: BLE001 - as above
            self._end_by(error)

    def _move(self) -> None:
        state = self._state
        if state.to_upstream:
            if self._is_reaching and self._opening is None:
                self._upstream.send(state.to_upstream)
            elif not self._is_reaching:
                self._reach()
        if state.to_client:
            self._client.send(state.to_client)
        if state.is_working and not self._is_at_work:
            self._is_at_work = True
            self._context.sliced.add(self._work)
        if state.holds_room and not state.client_is_full:
            self.session.return_room(self._now_ms())
        if state.is_held or state.holds_responses or state.mute or self._is_unsteady or self._timer:
            self._follow()

    def _follow(self) -> None:
        """Pause reading from the sides that have to wait, and set the timer that the session wants."""
        state = self._state
        if self._is_closing or self._client.is_gone:
            return
        self._client.pause(wanted=state.upstream_is_full or state.waiting_request_bytes > 0)
        self._upstream.pause(wanted=state.client_is_full or state.waiting_response_bytes > 0)
        # A client that is left unread for a long time may leave unnoticed. Not so one whose response is awaited: it may
        # have sent requests after it that ask for no response, and the broker has to get them although it has left.
        is_draining = state.phase is DRAINING
        waits_long = state.phase is THROTTLED or state.is_at_max_in_flight or state.held is not None
        self._watch(wanted=self._client.is_paused and waits_long and state.expects_all_responses)
        self._is_unsteady = self._client.is_paused or self._upstream.is_paused or is_draining
        wake_at_ms = state.wake_at_ms
        if wake_at_ms != self._timer_ms:
            if self._timer is not None:
                self._timer.cancel()
            self._timer, self._timer_ms = None, wake_at_ms
            if wake_at_ms is not None:
                delay_s = max(0, wake_at_ms - self._now_ms()) / 1000
                self._timer = self._context.loop.call_later(delay_s, self._wake)
        if is_draining and state.is_drained:
            self.close()

    def _watch(self, *, wanted: bool) -> None:
        if wanted and self._watched_fd is None:
            self._watched_fd = self._client.fileno
            if self._watched_fd is not None:
                self._context.close_watcher.watch(self._watched_fd, self._client.abort)
        elif not wanted and self._watched_fd is not None:
            self._context.close_watcher.forget(self._watched_fd)
            self._watched_fd = None

    def _wake(self) -> None:
        self._timer = None
        self._timer_ms = None
        self._resume(self._state.wake)

    def _full(self, pause: Callable[[], None], resume: Callable[[int], None], is_full: bool) -> None:  # noqa: FBT001
        if is_full:
            pause()
            self._follow()
        else:
            self._resume(resume)

    def _overdue(self, *, is_request: bool) -> None:
        """Close a connection that keeps memory others wait for, unless the delay is its broker's."""
        is_clients = not self._state.upstream_is_full if is_request else self._state.client_is_full
        if is_clients and not self._is_closing:
            what = "request that it does not send" if is_request else "response that it does not read"
            self._fail(f"client closed: it holds room for a {what}", _OVERDUE, LogLevel.WARNING)

    def _work(self) -> bool:
        """Do a slice of the work on a long response, and return whether some is left."""
        if self._is_closing or self._client.is_gone:
            return False
        try:
            self._is_at_work = self.session.work(self._now_ms())
            if not self._is_at_work:
                self._move()
        except Exception as error:  # noqa: BLE001 - as above
            self._end_by(error)
        return self._is_at_work and not self._is_closing

    def _resume_soon(self, release: Callable[[int], None]) -> None:
        self._context.loop.call_soon(self._resume, release)

    def _resume(self, release: Callable[[int], None]) -> None:
        if self._is_closing or self._client.is_gone:
            return
        try:
            release(self._now_ms())
            self._move()
        except Exception as error:  # noqa: BLE001 - as above
            self._end_by(error)

    def _client_gone(self) -> None:
        self._watch(wanted=False)
        self.session.end(self._now_ms())
        if not self._is_closing:
            requests = self._state.requests
            if requests.mid_frame or requests.rest_bytes:
                self._log("client vanished in the middle of a request", LogLevel.WARNING)
            if self._timer is not None:
                self._timer.cancel()
            if self._is_reaching:  # the broker gets the client's last bytes, and a moment to take them
                self._upstream.pause(wanted=False)
                self._upstream.finish()
                self._timer = self._context.loop.call_later(LINGER_S, self.close)
            else:
                self.close()
        self._check_closed()

    def _upstream_gone(self) -> None:
        if not self._is_closing:
            if self._state.in_flight and not self._client.is_gone:
                self._log("upstream closed the connection with requests unanswered", LogLevel.WARNING)
            self.close()
        self._check_closed()

    def _check_closed(self) -> None:
        if self._is_closing and self._opening is None and self._client.is_gone and self._upstream.is_gone:
            on_closed, self._on_closed = self._on_closed, lambda _: None
            on_closed(self)
            # Without a cycle of references it is freed now: the collector looks at old objects once in a million.
            self.session.release()
            self._client.release()
            self._upstream.release()
            self._reroute = None

    def _end_by(self, error: Exception) -> None:
        """Close the connection for an error, and log its origin: a peer, the settings or the daemon itself."""
        event, level = "client closed: it sent what can't be handled", LogLevel.WARNING
        # Not by whose bytes came last: a response lets the requests begin that waited for it.
        if isinstance(error, ProtocolError) and error.sender == "upstream":
            event, level = "connection closed: the upstream sent what can't be handled", LogLevel.ERROR
        elif not isinstance(error, KafkaQuotasError):
            error = KafkaQuotasError(error_text(error).removeprefix("internal error: "))
            event, level = "connection closed: internal error", LogLevel.ERROR
        elif not isinstance(error, ProtocolError):
            event, level = "connection closed: a broker can't be given an address here", LogLevel.ERROR
        self._fail(event, error, level)

    def _fail(self, event: str, error: KafkaQuotasError, level: LogLevel) -> None:
        self._counters.connections_failed += 1
        if isinstance(error, ProtocolError):
            self._counters.protocol_errors += 1
        self._log(event, level, error=error.message, **({"hint": error.hint} if error.hint else {}))
        self.close()

    def _log(self, event: str, level: LogLevel, **fields: str) -> None:
        late = {"unanswered": len(self._state.in_flight)} if self._state.in_flight else {}
        user = self.session.tracker.principal
        self._context.notify(LogEvent.of(event, level, client=self.peer, user=user, **late, **fields))
