"""The servers of a store: how they are written, which of them answers, and which were silent lately."""

import ssl

import pytest
from tests.support.processes.run_cli import run_cli

from kafka_quotas.core.errors import StoreRefusedError, StoreUnreachableError
from kafka_quotas.stores import servers
from kafka_quotas.stores.servers import REMEMBERED_S, ServerAddress, UnresponsiveBrokers, check_reachable

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

    monkeypatch.setattr(servers, "_probe", probe)
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
