"""What a client gets by many connections, or a new one per request: from a broker that keeps its quota, and from us.

All run at the same time, on the same topic: the broker's own quota is the control.
"""

import socket
import struct
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer
from tests.support.brokers.fake_broker import connected
from tests.support.brokers.servers import Kafka
from tests.support.daemon.process import running_daemon, set_quota
from tests.support.frames.enforcement import framed, produce

from kafka_quotas.commands.quotas.alter import alter
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.stores import open_store

pytestmark = pytest.mark.measuring

WINDOW: Final = ["--quota-window-num", "3", "--quota-window-size-seconds", "1"]
WINDOW_S: Final = 3
LIMIT: Final = 500_000.0
TIME_S: Final = 6.0
KEEPERS: Final = ("broker", "deliver", "kafka")
SHAPES: Final = {"one connection": (1, False), "one per fetch": (1, True), "30 at once": (30, False)}
REQUEST_BYTES: Final = 100_000


@pytest.fixture(scope="module")
def topic(kafka4: Kafka, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A topic of one partition with 10 MB in batches of 50 kB."""
    name = f"reconnects-{tmp_path_factory.mktemp('name').name}"
    producer = Producer({"bootstrap.servers": kafka4.bootstrap, "batch.size": 50_000})
    for _ in range(200):
        producer.produce(name, bytes(49_000))
        producer.poll(0)
    assert producer.flush(240) == 0
    return name


@pytest.fixture(scope="module")
def addresses(kafka4: Kafka, topic: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The address of who keeps the quota, by name: the broker for its own clients, and one daemon for each mode."""
    store = open_store(f"kafka://{kafka4.bootstrap}")
    names = [client_id(topic, shape, "broker") for shape in SHAPES]
    with ExitStack() as stack:
        stack.callback(store.close)
        for each in names:
            alter(store, entity=Entity.of(client_id=each), changes={"consumer_byte_rate": LIMIT})
        found = {"broker": kafka4.bootstrap}
        for mode in KEEPERS[1:]:
            folder = Path(tmp_path_factory.mktemp("d"))
            set_quota(folder, Entity.of(client_id=None), consumer_byte_rate=LIMIT)
            options = [*WINDOW, "--fetch-over-quota", mode]
            found[mode] = stack.enter_context(
                running_daemon(folder, upstream=kafka4.bootstrap, options=options)
            ).bootstrap
        yield found
        for each in names:
            alter(store, entity=Entity.of(client_id=each), changes={"consumer_byte_rate": None})


def client_id(topic: str, shape: str, keeper: str) -> str:
    return f"{topic}-{shape.replace(' ', '-')}-{keeper}"


def fetch_frame(topic: str, client: str) -> bytes:
    """A Fetch in version 11 of all that partition 0 has, without a session."""
    name = topic.encode()
    header = struct.pack(">hhih", 1, 11, 1, len(client)) + client.encode()
    limits = struct.pack(">iiiibii", -1, 500, 1, 50_000_000, 0, 0, -1)
    partition = struct.pack(">iiqqi", 0, -1, 0, -1, 50_000_000)
    return framed(
        header + limits + struct.pack(">ih", 1, len(name)) + name + struct.pack(">i", 1) + partition + bytes(6)
    )


def fetched_bytes(address: str, frame: bytes, until_s: float, *, reconnects: bool) -> int:
    """What one consumer receives until a time, which takes no notice of throttle times."""
    total = 0
    while time.monotonic() < until_s:
        with connected(address) as client:
            while (received := _received(client, frame, until_s)) is not None:
                total += received
                if reconnects:
                    break
    return total


def _received(client: socket.socket, frame: bytes, until_s: float) -> int | None:
    """The bytes of one response as far as they came in time, None for none any more."""
    length, total = None, 0
    try:
        client.sendall(frame)
        while length is None or total < length:
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return total or None
            client.settimeout(left_s)
            piece = client.recv(1 << 20)
            if not piece:
                return total or None
            if length is None:
                length = 4 + struct.unpack_from(">i", piece)[0]
            total += len(piece)
    except OSError:
        return total or None
    return total


@pytest.mark.parametrize("shape", SHAPES)
def test_consumers_get_no_more_than_their_quota_however_they_connect(
    addresses: dict[str, str], topic: str, shape: str
) -> None:
    consumers, reconnects = SHAPES[shape]

    def take(keeper: str) -> int:
        frame = fetch_frame(topic, client_id(topic, shape, keeper))
        until_s = time.monotonic() + TIME_S
        with ThreadPoolExecutor(consumers) as pool:
            taken = [
                pool.submit(fetched_bytes, addresses[keeper], frame, until_s, reconnects=reconnects)
                for _ in range(consumers)
            ]
            return sum(each.result() for each in taken)

    with ThreadPoolExecutor(len(KEEPERS)) as pool:
        got = dict(zip(KEEPERS, pool.map(take, KEEPERS), strict=True))
    allowed = LIMIT * (TIME_S + WINDOW_S)
    for keeper in KEEPERS[1:]:
        assert got[keeper] < 1.5 * max(got["broker"], allowed), got
    assert got["deliver"] > 0.5 * LIMIT * TIME_S


def produced(address: str, client: str, time_s: float) -> int:
    """How many requests of 100 kB are answered in a time, each on a connection of its own."""
    count, until_s = 0, time.monotonic() + time_s
    frame = produce(1, size=REQUEST_BYTES, client_id=client)
    while time.monotonic() < until_s:
        with socket.socket() as sock:
            host, port = address.rsplit(":", 1)
            sock.settimeout(max(0.1, until_s - time.monotonic()))
            try:
                sock.connect((host, int(port)))
                sock.sendall(frame)
                count += bool(sock.recv(4))
            except OSError:
                continue
    return count


def test_a_connection_per_produce_gets_what_a_broker_gives_it_unless_connections_are_limited(
    kafka4: Kafka, tmp_path: Path, unique_name: str
) -> None:
    store = open_store(f"kafka://{kafka4.bootstrap}")
    alter(store, entity=Entity.of(client_id=unique_name), changes={"producer_byte_rate": LIMIT})
    set_quota(tmp_path, Entity.of(client_id="ours"), producer_byte_rate=LIMIT)
    try:
        with running_daemon(tmp_path, upstream=kafka4.bootstrap, options=WINDOW) as daemon:
            counts = _both(
                lambda: produced(kafka4.bootstrap, unique_name, 3), lambda: produced(daemon.bootstrap, "ours", 3)
            )
            allowed = LIMIT * (3 + WINDOW_S) / REQUEST_BYTES
            assert counts[0] > 1.5 * allowed, "a broker takes it"
            assert counts[1] <= 2 * counts[0]
            set_quota(tmp_path, Entity.of(ip="127.0.0.1"), connection_creation_rate=4.0)
            daemon.wait_for_log("quotas applied", count=2)
            limited = produced(daemon.bootstrap, "ours", 4)
            assert limited <= 4 * (4 + WINDOW_S) + 1
    finally:
        alter(store, entity=Entity.of(client_id=unique_name), changes={"producer_byte_rate": None})
        store.close()


def _both(*calls: object) -> Sequence[int]:
    with ThreadPoolExecutor(len(calls)) as pool:
        return [each.result() for each in [pool.submit(call) for call in calls]]  # type: ignore[arg-type]


def test_a_client_that_gets_errors_is_muted_after_ten(kafka4: Kafka, tmp_path: Path) -> None:
    set_quota(tmp_path, Entity.of(client_id="app"), producer_byte_rate=LIMIT)
    with (
        running_daemon(tmp_path, upstream=kafka4.bootstrap, options=[*WINDOW, "--on-violation", "error"]) as daemon,
        connected(daemon.bootstrap) as client,
    ):
        sent, until_s, frame = 0, time.monotonic() + 4, produce(1, size=REQUEST_BYTES)
        client.settimeout(0.2)
        while time.monotonic() < until_s:
            try:
                sent += client.send(frame[sent % len(frame) :])
                client.setblocking(False)
                while client.recv(65536):
                    pass
            except (BlockingIOError, TimeoutError):
                client.settimeout(0.2)
        assert daemon.status().counters["refused_requests"] >= 10
        sockets_bytes = 8_000_000
        assert sent < 1.1 * (LIMIT * (4 + WINDOW_S) + 10 * REQUEST_BYTES) + sockets_bytes
