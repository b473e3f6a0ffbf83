"""One client's connection and one broker's, and the session between them: the I/O that the session does not do.

The broker is connected to when the client has sent what starts like a request, or all of one that is looked at as a
whole: a client that only opens connections, or can't agree on TLS, costs the broker nothing.
What is read is written to the other side as it is, views into it and never copies. A side is left unread while the
other does not take its bytes, or as soon as it has sent what its session lets wait: a client that waits by itself is
still read, so its end is seen.
"""

import asyncio
import socket
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kafka_quotas.core.clock import Clock
from kafka_quotas.core.errors import KafkaQuotasError, ProtocolError
from kafka_quotas.enforcement.proxy.transport import PeerCloseWatcher, Transport
from kafka_quotas.enforcement.proxy.upstream import UpstreamConfig, UpstreamError, connect
from kafka_quotas.enforcement.session.flow import CLOSED, DRAINING, READING, THROTTLED
from kafka_quotas.enforcement.session.gathering import GATHER_MS
from kafka_quotas.enforcement.session.session import Session
from kafka_quotas.enforcement.telemetry.counters import Counters
from kafka_quotas.enforcement.telemetry.log import LogEvent, LogLevel, Notify

LINGER_S: Final = 2.0
"""Seconds that a broker gets to take the last requests after their client has left."""
_OVERDUE: Final = KafkaQuotasError(
    f"it did not come within {GATHER_MS // 1000} s, and others wait", hint="see --queued-max-request-bytes"
)
_LOST: Final = KafkaQuotasError("nothing was acknowledged for minutes")


@dataclass(slots=True, kw_only=True)
class ProxyContext:
    """The loop, clock, counters and watchers that all connections of a daemon share."""

    loop: asyncio.AbstractEventLoop
    clock: Clock
    counters: Counters
    notify: Notify
    hang_ups: PeerCloseWatcher = field(init=False)

    def __post_init__(self) -> None:
        self.hang_ups = PeerCloseWatcher(self.loop)


class ProxiedConnection:
    """A client's connection, its broker's, and the session between the two.

    Args:
        on_closed: Called once, when both connections have ended.
        on_client: Called with the client's transport when its connection is made.
    """

    def __init__(
        self,
        room: ProxyContext,
        session: Session,
        *,
        peer: str,
        on_closed: Callable[["ProxiedConnection"], None],
        on_client: Callable[[asyncio.Transport], None] | None = None,
    ) -> None:
        self.session = session
        self._flow = session.flow
        self._shortcut = session.shortcut
        self.peer = peer
        self._room = room
        self._now_ms = room.clock.now_ms
        self._counters = room.counters
        self._on_closed = on_closed
        self._client = Transport(
            received=self._from_client, full=self._client_full, gone=self._client_gone, made=on_client
        )
        self._upstream = Transport(received=self._from_upstream, full=self._upstream_full, gone=self._upstream_gone)
        self._opening: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms: int | None = None
        self.way: UpstreamConfig | None = None
        """Route to the broker, None before `open`."""
        self.max_idle_ms: int | None = None
        """Longest time without a byte before the connection is closed, None for no limit."""
        self.has_moved = True
        """Whether bytes came from either side since `QuietConnections` last cleared it."""
        self.quiet_since_ms = 0
        """Time at which `QuietConnections` last found bytes moved."""
        self._is_reaching = False
        """Whether a connection to the broker was started."""
        session.gathering.on_room = self._found_room
        session.gathering.on_overdue = self._overdue
        self._watched_fd: int | None = None
        self._is_unsteady = False
        """Whether the session's holds may have changed outside `_move`."""

    def open(self, client: socket.socket, way: UpstreamConfig) -> None:
        """Serve an accepted connection."""
        self.way = way
        self._opening = self._room.loop.create_task(self._open(client, way))

    def expire(self) -> bool:
        """Close an idle connection unless its client is throttled, and return whether it was closed."""
        if self._is_closing or self.session.mute is not None:
            return False
        self.close()
        return True

    def leave_lost_peer(self) -> bool:
        """End a connection one of whose peers no longer acknowledges, and return whether it was so."""
        if self._is_closing or not (self._client.lost_peer() or self._upstream.lost_peer()):
            return False
        self._fail("connection closed: a peer does not answer any more", _LOST, LogLevel.WARNING)
        self.abort()
        return True

    def drain(self) -> None:
        """Close the connection after its last request is answered."""
        self.session.drain()
        self._follow()

    def unmute(self) -> None:
        """End the throttle time of the client."""
        self._resume(self.session.unmute)

    def close(self) -> None:
        """End both connections after their peers have taken what was sent.

        A second call does nothing.
        """
        if self._is_closing:
            return
        self.session.close()
        self.session.gathering.end(self._now_ms())
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
        return self._flow.state is CLOSED

    def abort(self) -> None:
        """End both connections now."""
        self.close()
        self._client.abort()
        self._upstream.abort()

    async def _open(self, client: socket.socket, way: UpstreamConfig) -> None:
        """Agree on TLS with the client, where the listener has TLS, and read from it."""
        error: OSError | None = None
        try:
            await self._room.loop.connect_accepted_socket(
                lambda: self._client,
                client,
                ssl=way.client_tls,
                ssl_handshake_timeout=None if way.client_tls is None else way.timeout_s,
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
        elif way.client_tls is not None and not self._is_closing:
            reason = getattr(error, "reason", None) or str(error) or type(error).__name__
            self._fail("client closed: TLS failed", KafkaQuotasError(reason), LogLevel.WARNING)
        else:
            self.close()  # the client is gone already

    def _reach(self) -> None:
        """Connect to the broker, and leave the client unread until the connection is made."""
        assert self.way is not None
        self._is_reaching = True
        self._upstream.write = self._flow.to_upstream.append
        self._flow.pause_requests()
        self._follow()
        self._opening = self._room.loop.create_task(self._connect(self.way))

    async def _connect(self, way: UpstreamConfig) -> None:
        error: UpstreamError | None = None
        try:
            await connect(lambda: self._upstream, way.upstream, timeout_s=way.timeout_s, tls=way.upstream_tls)
        except asyncio.CancelledError:
            self._upstream.forget()
            raise
        except UpstreamError as caught:
            error = caught
        finally:
            self._opening = None
            self._check_closed()
        if error is not None:
            self._counters.upstream_connect_failures += 1
            if way.failed is not None:
                way.failed()
            self._fail("upstream can't be connected", error, LogLevel.ERROR)
        elif self._client.is_gone:
            self._upstream.send(self._flow.to_upstream)  # what it sent last
            self._upstream.finish()
        else:
            self._resume(self._flow.resume_requests)

    # Bytes.

    def _from_client(self, data: bytes) -> None:
        self._counters.request_bytes += len(data)
        self.has_moved = True
        try:
            now_ms = self._now_ms()
            taken = self._shortcut.requests(data, now_ms)
            if taken == len(data) and self._flow.state is READING:
                self._upstream.write(data)  # the session is as steady as it was
            else:
                self.session.from_client(memoryview(data), now_ms, taken)
                self._move()
        except KafkaQuotasError as error:
            self._fail("client closed: it sent what can't be handled", error, LogLevel.WARNING)
        except Exception as error:  # noqa: BLE001 - a defect costs this connection, not the others
            self._break(error)

    def _from_upstream(self, data: bytes) -> None:
        if self._client.is_gone:
            return
        self._counters.response_bytes += len(data)
        self.has_moved = True
        try:
            taken = 0 if self._is_unsteady else self._shortcut.responses(data)
            if taken == len(data):
                self._client.write(data)
            else:
                self.session.from_upstream(memoryview(data), self._now_ms(), taken)
                self._move()
        except KafkaQuotasError as error:
            self._fail("connection closed: the upstream sent what can't be handled", error, LogLevel.ERROR)
        except Exception as error:  # noqa: BLE001 - as above
            self._break(error)

    def _move(self) -> None:
        """Write what the session put out, and have both sides follow its state."""
        flow = self._flow
        if flow.to_upstream:
            if self._is_reaching and self._opening is None:
                self._upstream.send(flow.to_upstream)
            elif not self._is_reaching:
                self._reach()
        if flow.to_client:
            self._client.send(flow.to_client)
        if flow.is_held or self._is_unsteady or flow.wake_at_ms != self._timer_ms:
            self._follow()

    def _follow(self) -> None:
        """Pause reading from the sides that have to wait, and set the timer that the session wants."""
        session, flow = self.session, self._flow
        if self._is_closing or self._client.is_gone:
            return
        self._client.pause(wanted=flow.upstream_is_full or session.waiting_request_bytes > 0)
        self._upstream.pause(wanted=flow.client_is_full or session.waiting_response_bytes > 0)
        is_left_waiting = self._client.is_paused and (flow.state is THROTTLED or flow.is_crowded)
        self._watch(wanted=is_left_waiting and session.wants_answers)
        is_draining = flow.state is DRAINING
        self._is_unsteady = self._client.is_paused or self._upstream.is_paused or is_draining
        if session.wake_at_ms != self._timer_ms:
            self._arm(session.wake_at_ms)
        if is_draining and session.drained:
            self.close()

    def _watch(self, *, wanted: bool) -> None:
        """Watch for the end of an unread client, or stop watching."""
        if wanted and self._watched_fd is None:
            self._watched_fd = self._client.fileno
            if self._watched_fd is not None:
                self._room.hang_ups.watch(self._watched_fd, self._client.abort)
        elif not wanted and self._watched_fd is not None:
            self._room.hang_ups.forget(self._watched_fd)
            self._watched_fd = None

    def _arm(self, wake_at_ms: int | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_ms = wake_at_ms
        if wake_at_ms is not None:
            delay_s = max(0, wake_at_ms - self._now_ms()) / 1000
            self._timer = self._room.loop.call_later(delay_s, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._timer_ms = None
        self._resume(self.session.wake)

    def _client_full(self, is_full: bool) -> None:  # noqa: FBT001 - the signature of a callback
        if is_full:
            self._flow.pause_responses()
            self._follow()
        else:
            self._resume(self._flow.resume_responses)

    def _upstream_full(self, is_full: bool) -> None:  # noqa: FBT001 - as above
        if is_full:
            self._flow.pause_requests()
            self._follow()
        else:
            self._resume(self._flow.resume_requests)

    def _found_room(self) -> None:
        """Resume a request that waited for memory, after the current callback has returned."""
        self._room.loop.call_soon(self._resume, self._flow.found_room)

    def _overdue(self) -> None:
        """Close a connection that keeps memory others wait for, unless its broker is what takes no bytes."""
        if not self._is_closing and not self._flow.upstream_is_full:
            self._fail("client closed: it holds room for a request that it does not send", _OVERDUE, LogLevel.WARNING)

    def _resume(self, release: Callable[[int], None]) -> None:
        """Lift a hold by `release` and move what it lets pass."""
        if self._is_closing or self._client.is_gone:
            return
        try:
            release(self._now_ms())
            self._move()
        except KafkaQuotasError as error:
            self._fail("connection closed: it carried what can't be handled", error, LogLevel.WARNING)
        except Exception as error:  # noqa: BLE001 - as above
            self._break(error)

    # Ends.

    def _client_gone(self) -> None:
        """Give the broker the client's last bytes, and a moment to take them."""
        self._watch(wanted=False)
        self.session.gathering.end(self._now_ms())
        if not self._is_closing:
            if self.session.mid_request:
                self._say("client vanished in the middle of a request", LogLevel.WARNING)
            if self._timer is not None:
                self._timer.cancel()
            if self._is_reaching:
                self._upstream.pause(wanted=False)
                self._upstream.finish()
                self._timer = self._room.loop.call_later(LINGER_S, self.close)
            else:
                self.close()
        self._check_closed()

    def _upstream_gone(self) -> None:
        """Close the client's connection after it has the broker's last bytes."""
        if not self._is_closing:
            if self.session.unanswered and not self._client.is_gone:
                self._say("upstream closed the connection with requests unanswered", LogLevel.WARNING)
            self.close()
        self._check_closed()

    def _check_closed(self) -> None:
        """Call `on_closed` once both connections have ended."""
        if self._is_closing and self._opening is None and self._client.is_gone and self._upstream.is_gone:
            on_closed, self._on_closed = self._on_closed, _nobody
            on_closed(self)

    def _break(self, error: Exception) -> None:
        """Close the connection for a defect of the daemon, and log where the defect is."""
        place = traceback.extract_tb(error.__traceback__)[-1]
        told = f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})"
        self._fail("connection closed: internal error", KafkaQuotasError(told), LogLevel.ERROR)

    def _fail(self, event: str, error: KafkaQuotasError, severity: LogLevel) -> None:
        self._counters.connections_failed += 1
        if isinstance(error, ProtocolError):
            self._counters.protocol_errors += 1
        fields: dict[str, str | float] = {"error": error.message}
        if error.hint:
            fields["hint"] = error.hint
        self._say(event, severity, fields)
        self.close()

    def _say(self, event: str, severity: LogLevel, fields: dict[str, str | float] | None = None) -> None:
        who: dict[str, str | float] = {"client": self.peer, "user": self.session.principal}
        if self.session.unanswered:
            who["unanswered"] = self.session.unanswered
        self._room.notify(LogEvent(event=event, severity=severity, fields=who | (fields or {})))


def _nobody(relay: ProxiedConnection) -> None:
    del relay
