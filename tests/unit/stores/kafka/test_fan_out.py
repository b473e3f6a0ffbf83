"""One question to every broker at once."""

import threading

import pytest

from kafka_quotas.core.errors import StoreRefusedError, StoreUnreachableError
from kafka_quotas.stores.kafka.fan_out import ask_each


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
