"""The session with ZooKeeper: its properties, the probe of its servers, its errors."""

import ssl
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import NoNodeError

from kafka_quotas.core.errors import StoreRefusedError, StoreUnreachableError
from kafka_quotas.stores.zookeeper import session
from kafka_quotas.stores.zookeeper.session import GatheredReads, check_reachable


class Pending:
    """A read that takes `took_s` on the virtual clock, and may find no znode."""

    def __init__(self, clock: list[float], took_s: float, *, exists: bool = True) -> None:
        self._clock = clock
        self._took_s = took_s
        self._exists = exists

    def get(self, *, timeout: float) -> str:
        self._clock[0] += min(timeout, self._took_s)
        if self._took_s > timeout:
            raise TimeoutError
        if not self._exists:
            raise NoNodeError
        return "data"


def together(clock: list[float], *reads: Pending) -> Any:
    client = SimpleNamespace(read=lambda path: reads[int(path)])
    return GatheredReads("read", [str(number) for number in range(len(reads))], client, monotonic_s=lambda: clock[0])


def test_answers_come_in_order_and_a_missing_znode_is_none() -> None:
    clock = [5.0]
    reads = (Pending(clock, 1), Pending(clock, 1, exists=False), Pending(clock, 1))
    assert together(clock, *reads).get(timeout=3) == ["data", None, "data"]


def test_the_timeout_is_that_of_all_reads_together() -> None:
    clock = [5.0]
    with pytest.raises(TimeoutError):
        together(clock, Pending(clock, 2), Pending(clock, 2), Pending(clock, 2)).get(timeout=3)
    assert clock == [8.0]


REFUSED = ConnectionRefusedError(111, "Connection refused")
BAD_TLS = ssl.SSLError(1, "certificate verify failed")
BAD_TLS.reason = "CERTIFICATE_VERIFY_FAILED"


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, OSError]:
    """Return the errors by server, empty where all servers answer."""
    errors: dict[str, OSError] = {}

    def probe(server: str, *, timeout_s: float, tls: ssl.SSLContext | None) -> None:
        if server in errors:
            raise errors[server]

    monkeypatch.setattr(session, "probe", probe)
    return errors


def test_one_server_that_answers_is_enough(answers: dict[str, OSError]) -> None:
    answers |= {"a:1": BAD_TLS, "b:1": REFUSED}
    check_reachable(["a:1", "b:1", "c:1"], url="zk://a:1,b:1,c:1", timeout_s=1)


def test_a_failed_handshake_is_reported_before_servers_that_are_down(answers: dict[str, OSError]) -> None:
    answers |= {"a:1": REFUSED, "b:1": BAD_TLS}
    with pytest.raises(StoreRefusedError, match="no TLS connection to b:1: "):
        check_reachable(["a:1", "b:1"], url="zk://a:1,b:1", timeout_s=1)


def test_without_any_server_each_reason_is_named(answers: dict[str, OSError]) -> None:
    answers |= {"a:1": REFUSED, "b:1": TimeoutError()}
    with pytest.raises(StoreUnreachableError, match=r"\(a:1: connection refused; b:1: no answer\)"):
        check_reachable(["a:1", "b:1"], url="zk://a:1,b:1", timeout_s=1)
