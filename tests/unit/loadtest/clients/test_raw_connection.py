"""Raw clients against peers that stay silent, send too little or too much, and share a storm's connections."""

import asyncio
import struct
import time
from collections import Counter
from typing import Any

import pytest

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.loadtest.clients.engine import RunClock
from kafka_quotas.loadtest.clients.raw import connection as module
from kafka_quotas.loadtest.clients.raw import floods
from kafka_quotas.loadtest.clients.raw.connection import Address, InFlight, Leaders, RawConnection
from kafka_quotas.loadtest.clients.raw.floods import RawStorm
from kafka_quotas.loadtest.plan.plan import ClientLoad, ClientName, LoadPlan
from kafka_quotas.loadtest.plan.workload import ClientKind, Workload
from kafka_quotas.stores.kafka.broker_client import KafkaAccess
from kafka_quotas.wire.client.request import VersionRequest
from kafka_quotas.wire.codec.encoding import framed

NO_ACCESS = KafkaAccess(tls=None, login=None, client_id="a")
STORM = ClientLoad(name=ClientName(user=None, client_id="a"), workload=Workload.CONNECT, client=ClientKind.RAW)


class SilentTransport(asyncio.Transport):
    """A transport whose peer never sends anything."""

    def __init__(self) -> None:
        super().__init__()
        self.is_aborted = False

    def write(self, data: Any) -> None:
        pass

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def abort(self) -> None:
        self.is_aborted = True


def connection(lost: list[Exception | None]) -> RawConnection:
    """An open connection to a silent peer, which adds the reason of its end to `lost`."""
    made = RawConnection(on_lost=lambda _connection, error: lost.append(error), on_room=lambda: None)
    made.connection_made(SilentTransport())
    return made


@pytest.mark.parametrize("size", [0, 1, 2, 3])
def test_a_response_too_short_for_its_correlation_id_ends_the_connection(size: int) -> None:
    lost: list[Exception | None] = []
    short = connection(lost)
    short.in_flight.append(InFlight(1, 0, lambda *_: None, None))

    short.data_received(struct.pack(">i", size) + bytes(size))

    (error,) = lost
    assert isinstance(error, ProtocolError)
    assert not short.is_open


def test_a_question_to_a_silent_peer_ends_by_time() -> None:
    async def ask() -> None:
        await connection([]).ask(VersionRequest(), 2, within_s=0.0)

    with pytest.raises(TimeoutError):
        asyncio.run(ask())


def test_a_question_on_a_connection_that_has_ended_fails_at_once() -> None:
    async def ask() -> None:
        ended = connection([])
        ended.connection_lost(None)
        await ended.ask(VersionRequest(), 2)

    with pytest.raises(ConnectionAbortedError):
        asyncio.run(ask())


def test_what_a_peer_sends_after_its_answer_reaches_the_owner() -> None:
    lost: list[Exception | None] = []

    async def ask() -> None:
        talkative = connection(lost)
        asked = asyncio.ensure_future(talkative.ask(VersionRequest(), 2))
        await asyncio.sleep(0)
        answer = framed(struct.pack(">ihii", 1, 0, 0, 0))  # correlation id, error, number of APIs, throttle time
        talkative.data_received(answer + framed(struct.pack(">i", 99)))
        await asked

    asyncio.run(ask())

    (error,) = lost
    assert isinstance(error, ProtocolError)


def test_a_server_that_does_not_answer_counts_as_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    async def opened(_address: Address, **_options: object) -> RawConnection:
        return connection([])

    monkeypatch.setattr(module, "opened", opened)
    silent = Leaders("127.0.0.1:1", answer_s=0.0)

    with pytest.raises(TimeoutError):
        asyncio.run(silent.of("t", access=NO_ACCESS))


def test_the_connections_of_a_burst_are_shared_by_all_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    reached: Counter[Address] = Counter()

    async def asked(address: Address, *_request: object, **_options: object) -> None:
        reached[address] += 1
        if reached.total() == 6:
            storm.end_ns = 0
        raise ConnectionRefusedError

    monkeypatch.setattr(floods, "asked", asked)
    bootstrap = "127.0.0.1:1,127.0.0.1:2"
    plan = LoadPlan(bootstrap=bootstrap, entities=(STORM,), duration_s=1, warmup_s=0, window=QuotaWindow())
    now_ns = time.monotonic_ns()
    clock = RunClock(start_ns=now_ns, measure_from_ns=now_ns, end_ns=now_ns + 60_000_000_000)

    storm = RawStorm(plan, STORM, clock, Leaders(bootstrap))

    asyncio.run(storm.live())

    first, second = reached["127.0.0.1", 1], reached["127.0.0.1", 2]
    assert first + second > 5
    assert abs(first - second) <= 1
