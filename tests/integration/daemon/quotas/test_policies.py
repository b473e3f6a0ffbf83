"""The daemon on other terms than Kafka's: policy file, cluster scope, leaving clients, a store that is deleted."""

import signal
import socket
from pathlib import Path

from tests.support.brokers.fake_broker import answer_each, answer_question, connected, fake_broker, receive_frame
from tests.support.daemon.process import DaemonProcess, running_daemon, set_quota
from tests.support.frames.enforcement import (
    fetch,
    fetch_response,
    produce,
    produce_response,
    request,
    response,
    throttle_of,
)

from kafka_quotas.core.model.entity import Entity

APP = Entity.of(client_id="app")
HEARTBEAT = 12
PATIENCE_S = 240.0
EXAMPLE = Path(__file__).parents[4] / "examples" / "daemon" / "policy.toml"


def producing_broker(connection: socket.socket) -> None:
    """Answers Produce, Fetch and Heartbeat in the versions that the frames here are in."""
    while True:
        frame = receive_frame(connection)
        key, correlation_id = int.from_bytes(frame[4:6], "big"), int.from_bytes(frame[8:12], "big")
        if key == 0:
            connection.sendall(produce_response(correlation_id))
        elif key == 1:
            connection.sendall(fetch_response(correlation_id, size=9000, version=6))
        else:
            connection.sendall(response(correlation_id, bytes(6)))


def heartbeat(correlation_id: int) -> bytes:
    return request(HEARTBEAT, 2, correlation_id, bytes(10))


def test_a_muted_client_that_leaves_with_a_request_in_hand_is_noticed_at_once(tmp_path: Path) -> None:
    set_quota(tmp_path, APP, producer_byte_rate=10.0)
    with (
        fake_broker(producing_broker) as broker,
        running_daemon(tmp_path, upstream=broker.address) as daemon,
        connected(daemon.bootstrap) as staying,
    ):
        staying.sendall(heartbeat(1))
        receive_frame(staying)
        with connected(daemon.bootstrap) as leaving:
            leaving.sendall(produce(1, size=60_000) + produce(2, size=60_000))
            assert throttle_of(receive_frame(leaving), -4) > 60_000
            daemon.wait_until(lambda status: bool(status.throttled))
        daemon.wait_until(lambda status: status.connections == 1)
        staying.sendall(heartbeat(2))
        receive_frame(staying)


def test_a_muted_client_that_asked_for_no_answers_is_heard_out(tmp_path: Path) -> None:
    set_quota(tmp_path, APP, producer_byte_rate=40_000.0)
    heard: list[int] = []

    def counting_broker(connection: socket.socket) -> None:
        answer_question(connection)
        while True:
            heard.append(int.from_bytes(receive_frame(connection)[8:12], "big"))

    options = ["--quota-window-num", "2", "--max-throttle-ms", "500"]
    with (
        fake_broker(counting_broker) as broker,
        running_daemon(tmp_path, upstream=broker.address, options=options) as daemon,
    ):
        with connected(daemon.bootstrap) as leaving:
            for number in range(1, 4):
                leaving.sendall(produce(number, size=60_000, acks=0))
        daemon.wait_until(lambda _: heard == [1, 2, 3], timeout_s=PATIENCE_S)


def test_a_store_file_that_is_deleted_is_lost_and_its_last_content_stays_in_force(tmp_path: Path) -> None:
    set_quota(tmp_path, APP, producer_byte_rate=1000.0)
    with fake_broker(producing_broker) as broker, running_daemon(tmp_path, upstream=broker.address) as daemon:
        for file in tmp_path.glob("quotas.db*"):
            file.unlink()
        assert "the store is gone" in daemon.wait_for_log("store can't be read; its last content stays in force")
        status = daemon.wait_until(lambda status: status.store.trouble is not None)
        assert status.store.limits == 1
        daemon.send(signal.SIGHUP)
        daemon.wait_for_log("reading quotas again")
        assert daemon.status().store.limits == 1
        with connected(daemon.bootstrap) as client:
            client.sendall(produce(1, size=60_000))
            assert throttle_of(receive_frame(client), -4) > 0
        set_quota(tmp_path, APP, producer_byte_rate=2000.0)
        daemon.wait_for_log("store is reached again", timeout_s=PATIENCE_S)
        daemon.wait_until(lambda status: [row.limit for row in status.buckets] == [2000.0], timeout_s=PATIENCE_S)


def test_a_policy_file_is_read_again_and_one_with_a_mistake_changes_nothing(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text("[[entity]]\nclient_id = 'app'\nrequest_rate = 0.1\nmax_throttle_ms = 300\n")
    options = ["--policy", str(policy), "--quota-window-num", "3"]
    with (
        fake_broker(producing_broker) as broker,
        running_daemon(tmp_path, upstream=broker.address, options=options) as daemon,
        connected(daemon.bootstrap) as client,
    ):
        assert daemon.status().store.limits == 1
        assert heartbeat_throttle_ms(client, 1) == 300  # one in two seconds is over one in ten
        policy.write_text("[[entity]]\nclient_id = 'app'\nrequest_rate = 'many'\n")
        daemon.send(signal.SIGHUP)
        said = daemon.wait_for_log("quotas can't be read again; the earlier ones stay in force")
        assert "policy.toml:3: entity.1.request_rate: 'many' is not a number" in said
        assert daemon.status().store.limits == 1
        policy.write_text("")
        daemon.send(signal.SIGHUP)
        daemon.wait_until(lambda status: status.store.limits == 0)
        assert [heartbeat_throttle_ms(client, number) for number in range(10)] == [0] * 10


def heartbeat_throttle_ms(client: socket.socket, correlation_id: int) -> int:
    """The throttle time of a heartbeat's answer."""
    client.sendall(heartbeat(correlation_id))
    return throttle_of(receive_frame(client))


def test_the_example_of_a_policy_file_is_one_that_the_daemon_takes(tmp_path: Path) -> None:
    with (
        fake_broker(answer_each) as broker,
        running_daemon(tmp_path, upstream=broker.address, options=["--policy", str(EXAMPLE)]) as daemon,
    ):
        assert daemon.status().store.limits == 3  # of requests, of a group, and a guaranteed rate


def test_a_fetch_over_quota_is_answered_as_a_broker_would_if_told_so(tmp_path: Path) -> None:
    set_quota(tmp_path, APP, consumer_byte_rate=1000.0)
    options = ["--fetch-over-quota", "kafka", "--quota-window-num", "3"]
    with (
        fake_broker(producing_broker) as broker,
        running_daemon(tmp_path, upstream=broker.address, options=options) as daemon,
        connected(daemon.bootstrap) as client,
    ):
        client.sendall(fetch(1, version=6))
        answer = receive_frame(client)
        assert throttle_of(answer) == 6996  # 8996 bytes over two seconds against 1000 bytes/s
        assert answer[12:] == bytes(4)
        (bucket,) = measured(daemon)
        assert bucket < 1000


def measured(daemon: DaemonProcess) -> list[float]:
    """What is measured in each bucket with a limit."""
    return [row.observed for row in daemon.status().buckets]


def test_a_shadow_is_counted_and_left_alone(tmp_path: Path) -> None:
    set_quota(tmp_path, APP, producer_byte_rate=1000.0)
    with (
        fake_broker(producing_broker) as broker,
        running_daemon(tmp_path, upstream=broker.address, options=["--mode", "shadow"]) as daemon,
        connected(daemon.bootstrap) as client,
    ):
        for number in range(1, 4):
            client.sendall(produce(number, size=60_000))
            assert throttle_of(receive_frame(client), -4) == 0
        daemon.wait_for_log("client would be throttled")
        assert not daemon.status().throttled
