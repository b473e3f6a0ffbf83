"""What networks do to connections between clients, daemon and brokers, by a proxy on either side of the daemon."""

import asyncio
import logging
import socket
from pathlib import Path

import pytest
from tests.chaos.cuts import Cut, Side, charged, cut_through, every_cut, is_right
from tests.chaos.faulty_network import RECORDS, faulty
from tests.chaos.network import network
from tests.support.brokers.fake_broker import connected, is_closed
from tests.support.brokers.java_process import java
from tests.support.daemon.fault_proxy import Ending, Fault, Faults
from tests.support.daemon.pinged import PING, ping
from tests.support.frames.recorded_exchange import FETCHED, converse, steps
from tests.support.processes.figures import open_descriptors

SEED = 20261122
CUTS = 100
STEPS = len(steps("anyone"))
ANSWERED = sum(step.answer for step in steps("anyone"))
PRODUCED = sum(step.produced for step in steps("anyone"))


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("ending", "stride"), [(Ending.CLOSE, 1), (Ending.RESET, 3)])
def test_a_connection_may_be_cut_after_any_byte(tmp_path: Path, ending: Ending, stride: int) -> None:
    cuts = list(every_cut([ending], stride=stride))
    with network(tmp_path) as net:
        with connected(net.daemon.bootstrap) as steady:
            ping(steady)
            descriptors, timers = net.at_rest()
            reached = {}
            for cut in cuts:
                reached[cut] = cut_through(net, cut)
                ping(steady)
            net.wait_for_connections(1)
            net.wait_for_figures(descriptors=descriptors, timers=timers)
        net.wait_for_connections(0)
    assert {cut: passed for cut, passed in reached.items() if passed != cut.after} == {}
    found = charged(net.events)
    assert {
        cut.client_id: found.get(cut.client_id) for cut in cuts if not is_right(found.get(cut.client_id), cut)
    } == {}


@pytest.mark.parametrize("side", list(Side))
def test_bytes_are_counted_though_the_client_has_them_and_leaves_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, side: Side
) -> None:
    send = asyncio.SelectorEventLoop.sock_sendall

    async def send_and_dawdle(loop: asyncio.SelectorEventLoop, sock: socket.socket, data: bytes) -> None:
        await send(loop, sock, data)
        await asyncio.sleep(0.05)

    with network(tmp_path) as net:
        monkeypatch.setattr(asyncio.SelectorEventLoop, "sock_sendall", send_and_dawdle)
        last = Cut(side=side, is_request=False, after=ANSWERED, ending=Ending.CLOSE)
        assert cut_through(net, last) == ANSWERED


def test_a_broker_that_hangs_up_at_once_leaves_nothing_behind(tmp_path: Path) -> None:
    with network(tmp_path, broker=lambda connection: None) as net:
        for connections in (1, 30):
            descriptors, timers = open_descriptors(net.daemon.pid), net.timers()
            for _ in range(connections):
                with connected(net.daemon.bootstrap) as client:
                    client.sendall(PING)
                    assert is_closed(client)
            net.wait_for_connections(0)
        net.wait_for_figures(descriptors=descriptors, timers=timers)


@pytest.mark.parametrize("piece_bytes", [1, 20])
def test_bytes_may_come_and_go_in_small_pieces(tmp_path: Path, piece_bytes: int) -> None:
    slow = Fault(piece_bytes=piece_bytes, delay_s=0.001)
    with network(tmp_path) as net:
        for client_id, at_client, at_broker in (
            ("slow-c", True, False),
            ("slow-b", False, True),
            ("slow-2", True, True),
        ):
            net.next_client.faults = Faults(to_upstream=slow, to_client=slow) if at_client else Faults()
            net.next_broker.faults = Faults(to_upstream=slow, to_client=slow) if at_broker else Faults()
            with connected(net.client_side.address) as client:
                assert converse(client, client_id) == STEPS
        net.wait_for_connections(0)
    for client_id, found in charged(net.events).items():
        assert (found.produced, found.fetched) == ({PRODUCED}, {FETCHED - 4}), client_id


@pytest.mark.parametrize("after", [0, 60])
def test_a_broker_that_falls_silent_holds_nobody_but_its_client(tmp_path: Path, after: int) -> None:
    silent = Fault(cut_after=after, ending=Ending.SILENCE)
    with network(tmp_path) as net, connected(net.daemon.bootstrap) as steady:
        ping(steady)
        descriptors, timers = net.at_rest()
        for faults in (Faults(to_upstream=silent), Faults(to_client=silent)):
            net.next_broker.faults = faults
            with connected(net.client_side.address) as client:
                client.settimeout(1.0)
                with pytest.raises(TimeoutError):
                    converse(client, "silent")
                ping(steady)
        net.wait_for_connections(1)  # though the proxy never ends the daemon's connections to it
        net.wait_for_figures(descriptors=descriptors, timers=timers)


@pytest.mark.integration
@pytest.mark.timeout(900)
@pytest.mark.skipif(java() is None, reason="needs Java to start a real broker, and there is no java on the path")
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")  # kafka-python leaves them behind
def test_nothing_is_lost_or_doubled_on_a_network_that_cuts_delays_and_trickles(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, logger="kafka")
    result = faulty(SEED, CUTS, tmp_path, print)
    assert result.is_right, result
    assert min(result.acknowledged.values()) > RECORDS
    assert result.cuts >= CUTS
