"""How long servers are waited for: Kafka's own properties, and brokers that were silent once."""

import threading

import pytest
from tests.support.processes.run_cli import run_cli

from kafka_quotas.core.errors import StoreRefusedError, StoreUnreachableError, UsageError
from kafka_quotas.stores.kafka.fan_out import ask_each
from kafka_quotas.stores.server_address import ServerAddress
from kafka_quotas.stores.settings import StoreSettings
from kafka_quotas.stores.timeouts import Timeouts, timeouts
from kafka_quotas.stores.unresponsive_brokers import REMEMBERED_S, UnresponsiveBrokers

CALL, REQUEST = "default.api.timeout.ms", "request.timeout.ms"


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, Timeouts(call_s=30)),
        ({CALL: "2000"}, Timeouts(call_s=2)),
        ({REQUEST: "1500"}, Timeouts(call_s=30, request_s=1.5)),
        ({REQUEST: "45000"}, Timeouts(call_s=45, request_s=45)),
        ({REQUEST: "500", CALL: " 500 "}, Timeouts(call_s=0.5, request_s=0.5)),
    ],
)
def test_kafkas_properties_count(properties: dict[str, str], expected: Timeouts) -> None:
    assert timeouts(StoreSettings(client_properties=properties)) == expected


@pytest.mark.parametrize(
    "properties",
    [{CALL: "0"}, {CALL: "-1"}, {REQUEST: "2s"}, {REQUEST: "2147483648"}, {REQUEST: "3000", CALL: "2000"}],
)
def test_a_time_that_cannot_be_meant_is_refused_by_name(properties: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=r"(default\.api|request)\.timeout\.ms"):
        timeouts(StoreSettings(client_properties=properties))


def test_an_address_is_shown_as_it_is_written() -> None:
    for text in ("[::1]:9092", "broker-1:9092", "127.0.0.1:1"):
        assert str(ServerAddress.parse(text)) == text


def test_an_unreachable_ipv6_address_is_named_with_its_brackets() -> None:
    code, _, err = run_cli("describe", "--bootstrap-server", "[::1]:1")
    assert code == 1
    assert "([::1]:1: " in err


def test_a_silent_broker_is_forgotten_after_a_while_or_when_it_answers() -> None:
    now_s = [100.0]
    found = UnresponsiveBrokers(monotonic_s=lambda: now_s[0])
    first, second = ServerAddress("a", 1), ServerAddress("b", 1)
    found.add(first, "timed out")
    found.add(second, "connection refused")
    assert (found.reason(first), found.reason(second)) == ("timed out", "connection refused")
    found.discard(second)
    assert found.reason(second) is None
    now_s[0] += REMEMBERED_S
    assert found.reason(first) is None


def test_brokers_are_asked_side_by_side() -> None:
    together = threading.Barrier(3)

    def question(node_id: int) -> int:
        together.wait(30)  # fails unless all three are asked at once
        if node_id == 2:
            raise StoreUnreachableError("broker 2 does not answer")
        return node_id * 10

    found = ask_each((3, 1, 2), question)
    assert dict(found.answers) == {1: 10, 3: 30}
    assert found.missing == "broker 2 does not answer"


def test_what_every_broker_refuses_is_a_refusal() -> None:
    def question(node_id: int) -> int:
        raise StoreRefusedError(f"broker {node_id} refuses")

    with pytest.raises(StoreRefusedError, match="broker 1 refuses"):
        ask_each((1, 2), question).raise_refusal()
    with pytest.raises(ZeroDivisionError):
        ask_each((1, 2), lambda node_id: 1 // (node_id - 2))
