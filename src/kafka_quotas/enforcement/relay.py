"""One client's socket and one broker's, and the session between them: the I/O that the session does not do.

Sockets are read straight into one buffer that all relays share and written from it in the same call: nothing is kept
per connection but what the kernel would not take. A side is read only while its session lets it, so that an end is seen
only when everything before it has been passed on.
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
from kafka_quotas.enforcement.counters import Counters
from kafka_quotas.enforcement.holds import BACKPRESSURE, CONNECTING
from kafka_quotas.enforcement.notice import Notice, Notify, Severity
from kafka_quotas.enforcement.poller import Poller
from kafka_quotas.enforcement.relay_side import RelaySide, SideEvents
from kafka_quotas.enforcement.session import Session

READ_BYTES: Final = 512 * 1024
"""How much is read at once: large enough that a megabyte takes few system calls, small enough to stay in the cache."""
LINGER_S: Final = 2.0
"""How long a broker gets to take the last requests of a client that is gone."""


@dataclass(slots=True, kw_only=True)
class RelayRoom:
    """What all relays of a daemon share."""

    loop: asyncio.AbstractEventLoop
    poller: Poller
    clock: Clock
    counters: Counters
    notify: Notify
    buffer: memoryview = field(default_factory=lambda: memoryview(bytearray(READ_BYTES)))


class Relay:
    """A connection pair; `on_closed` is called once, when both sockets are closed."""

    def __init__(
        self,
        room: RelayRoom,
        session: Session,
        *,
        client: socket.socket,
        peer: str,
        on_closed: Callable[["Relay"], None],
    ) -> None:
        self.session = session
        self.peer = peer
        self._room = room
        self._on_closed = on_closed
        self._client = RelaySide(
            room.poller,
            client,
            SideEvents(readable=self._client_readable, drained=self._client_drained, broken=self._client_ended),
        )
        self._upstream: RelaySide | None = None
        self._connecting: asyncio.Task[socket.socket] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms: int | None = None
        self._is_closed = False
        self._client_gone = False
        self._is_draining = False

    def connect(self, connecting: "asyncio.Task[socket.socket]") -> None:
        """Nothing; the client is read as soon as the broker's connection is there."""
        self.session.hold_requests(CONNECTING)
        self._connecting = connecting
        connecting.add_done_callback(self._connected)

    def drain(self) -> None:
        """Nothing; the connection closes when its last request is answered."""
        self._is_draining = True
        self.session.drain()
        if self._upstream is None:
            self.close()
        self._follow()

    def close(self) -> None:
        """Nothing; both sockets are closed, whatever is under way. A second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self._client.close()
        if self._upstream is not None:
            self._upstream.close()
        self._on_closed(self)

    def _connected(self, connecting: "asyncio.Task[socket.socket]") -> None:
        self._connecting = None
        if connecting.cancelled():
            self.close()
            return
        error = connecting.exception()
        if error is not None:
            self._room.counters.upstream_connect_failures += 1
            self._fail("upstream can't be connected", error, Severity.ERROR)
            return
        sock = connecting.result()
        if self._is_closed:
            sock.close()
            return
        self._upstream = RelaySide(
            self._room.poller,
            sock,
            SideEvents(readable=self._upstream_readable, drained=self._upstream_drained, broken=self._upstream_ended),
        )
        self.session.release_requests(CONNECTING, self._room.clock.now_ms())
        self._follow()

    # Bytes. A side that is held is paused only when it has something to say: most clients wait by themselves.

    def _client_readable(self) -> None:
        room, session = self._room, self.session
        if session.request_holds:
            self._client.pause()
            return
        count = self._receive(self._client)
        if count > 0:
            room.counters.request_bytes += count
            try:
                session.from_client(room.buffer[:count], room.clock.now_ms())
                self._move()
            except KafkaQuotasError as error:
                self._fail("client closed: it sent what can't be handled", error, Severity.WARNING)
            except Exception as error:  # noqa: BLE001 - a defect costs this connection, not the others
                self._break(error)
        elif count == 0:
            self._client_ended()

    def _upstream_readable(self) -> None:
        room, session, upstream = self._room, self.session, self._upstream
        assert upstream is not None
        if session.response_holds and not self._client_gone:
            upstream.pause()
            return
        count = self._receive(upstream)
        if count > 0:
            if self._client_gone:
                return
            room.counters.response_bytes += count
            try:
                session.from_upstream(room.buffer[:count], room.clock.now_ms())
                self._move()
            except KafkaQuotasError as error:
                self._fail("connection closed: the upstream sent what can't be handled", error, Severity.ERROR)
            except Exception as error:  # noqa: BLE001 - as above
                self._break(error)
        elif count == 0:
            self._upstream_ended()

    def _receive(self, side: RelaySide) -> int:
        """How many bytes are in the shared buffer; 0 at the stream's end, -1 if there was nothing to read."""
        try:
            return side.sock.recv_into(self._room.buffer)
        except (BlockingIOError, InterruptedError):
            return -1
        except OSError:
            return 0  # a connection that was reset has ended as well

    def _move(self) -> None:
        """Nothing; what the session put out is written, and both sides do what its holds say."""
        session, upstream = self.session, self._upstream
        try:
            if session.to_upstream and upstream is not None:
                if not upstream.send(session.to_upstream):
                    session.hold_requests(BACKPRESSURE)
                session.to_upstream.clear()
            if session.to_client:
                if not self._client.send(session.to_client):
                    session.hold_responses(BACKPRESSURE)
                session.to_client.clear()
        except OSError:
            self.close()  # written to a peer that is gone; what it left unread dies with the connection
            return
        self._follow()

    def _follow(self) -> None:
        """Nothing; sides that were paused go on if they may, the timer is as the session wants it."""
        session, upstream = self.session, self._upstream
        if upstream is None or self._is_closed or self._client_gone:
            return
        if self._client.is_paused and not session.request_holds:
            self._client.resume()
        if upstream.is_paused and not session.response_holds:
            upstream.resume()
        if session.wake_at_ms != self._timer_ms:
            self._arm(session.wake_at_ms)
        if self._is_draining and session.drained and not self._client.is_full:
            self.close()

    def _arm(self, wake_at_ms: int | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_ms = wake_at_ms
        if wake_at_ms is not None:
            delay_s = max(0, wake_at_ms - self._room.clock.now_ms()) / 1000
            self._timer = self._room.loop.call_later(delay_s, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._timer_ms = None
        self._resume(self.session.wake)

    def _upstream_drained(self) -> None:
        self._resume(lambda now_ms: self.session.release_requests(BACKPRESSURE, now_ms))

    def _client_drained(self) -> None:
        self._resume(lambda now_ms: self.session.release_responses(BACKPRESSURE, now_ms))

    def _resume(self, release: Callable[[int], None]) -> None:
        """Nothing; what a release lets go is moved."""
        if self._is_closed:
            return
        try:
            release(self._room.clock.now_ms())
            self._move()
        except KafkaQuotasError as error:
            self._fail("connection closed: it carried what can't be handled", error, Severity.WARNING)
        except Exception as error:  # noqa: BLE001 - as above
            self._break(error)

    # Ends.

    def _client_ended(self) -> None:
        """Nothing; the broker gets what the client sent last, and a moment to take it."""
        if self.session.mid_request:
            self._say("client vanished in the middle of a request", Severity.WARNING)
        if self._upstream is None:
            self.close()
            return
        self._client_gone = True
        self._client.close()
        if self._upstream.is_paused:
            self._upstream.resume()
        self._upstream.finish()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._room.loop.call_later(LINGER_S, self.close)

    def _upstream_ended(self) -> None:
        if self.session.unanswered and not self._client_gone:
            self._say("upstream closed the connection with requests unanswered", Severity.WARNING)
        self.close()

    def _break(self, error: Exception) -> None:
        """Nothing; the connection is closed for a defect of the daemon, and the log says where it is."""
        place = traceback.extract_tb(error.__traceback__)[-1]
        told = f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})"
        self._fail("connection closed: internal error", KafkaQuotasError(told), Severity.ERROR)

    def _fail(self, event: str, error: BaseException, severity: Severity) -> None:
        self._room.counters.connections_failed += 1
        if isinstance(error, ProtocolError):
            self._room.counters.protocol_errors += 1
        fields: dict[str, str | float] = {"error": str(error)}
        if isinstance(error, KafkaQuotasError) and error.hint:
            fields["hint"] = error.hint
        self._say(event, severity, fields)
        self.close()

    def _say(self, event: str, severity: Severity, fields: dict[str, str | float] | None = None) -> None:
        who: dict[str, str | float] = {"client": self.peer, "user": self.session.principal}
        if self.session.unanswered:
            who["unanswered"] = self.session.unanswered
        self._room.notify(Notice(event=event, severity=severity, fields=who | (fields or {})))
