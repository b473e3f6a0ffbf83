"""How fast and how many connections may be made, on a virtual clock."""

import pytest
from tests.support.daemon.whole_run import run_whole

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.enforcement.proxy.connection_quotas import IDLE_MS, BrokerConnectionQuotas, ConnectionQuotas
from kafka_quotas.stores.store import QuotaEntry

NOW_MS = 1_000_000
WINDOW = QuotaWindow(samples=3, window_s=1)
RATE = "connection_creation_rate"


def limits(**by_ip: float) -> ConnectionQuotas:
    made = ConnectionQuotas(WINDOW, broker_rate=5.0)
    entries = [
        QuotaEntry(entity=Entity.of(ip=None if ip == "default" else ip), quotas={RATE: limit})
        for ip, limit in by_ip.items()
    ]
    made.apply([*entries, QuotaEntry(entity=Entity.of(user="alice"), quotas={"producer_byte_rate": 1.0})])
    return made


def names(rates: BrokerConnectionQuotas) -> list[str]:
    return [name for _, name in rates.rates]


def admitted(rates: BrokerConnectionQuotas, ip: str, *, count: int, every_ms: int) -> int:
    return sum(not rates.record_ip(ip, 1, NOW_MS + number * every_ms) for number in range(count))


def test_an_address_gets_its_rate_for_what_is_refused_does_not_count_and_any_other_is_served() -> None:
    rates = limits(**{"10.0.0.1": 5.0}).broker(1)
    assert admitted(rates, "10.0.0.2", count=500, every_ms=0) == 500
    assert admitted(rates, "10.0.0.1", count=600, every_ms=100) == pytest.approx(5 * 60, rel=0.05)


def test_an_entry_that_can_not_be_used_leaves_the_limits_as_they_are() -> None:
    made = limits(**{"10.0.0.1": 5.0})
    with pytest.raises(UsageError):
        made.apply([QuotaEntry(entity=Entity.of(user="alice", ip="10.0.0.9"), quotas={RATE: 1.0})])
    match = made.ip_limits.match("10.0.0.1")
    assert match is not None
    assert match.limit == 5.0


def test_a_refused_connection_waits_for_one_sample_at_most_and_is_not_counted() -> None:
    rates = limits(**{"10.0.0.1": 1.0}).broker(1)
    delays = [rates.record_ip("10.0.0.1", 1, NOW_MS) for _ in range(10)]
    assert delays[:2] == [0, 0]  # 2 in a window of 2 s are 1 per second
    assert set(delays[2:]) == {1000}


def test_the_default_gives_each_address_a_rate_of_its_own() -> None:
    rates = limits(default=2.0, **{"10.0.0.9": 1000.0}).broker(1)
    for ip in ("10.0.0.1", "10.0.0.2", "::1"):
        assert admitted(rates, ip, count=50, every_ms=0) == 4
    assert admitted(rates, "10.0.0.9", count=50, every_ms=0) == 50
    assert rates.record_ip("::ffff:10.0.0.1", 1, NOW_MS) > 0, "one address, however it is spelt"


def test_a_changed_limit_holds_at_once_and_keeps_what_was_counted() -> None:
    chosen = limits(**{"10.0.0.1": 2.0})
    rates = chosen.broker(1)
    assert admitted(rates, "10.0.0.1", count=50, every_ms=0) == 4
    chosen.apply([QuotaEntry(entity=Entity.of(ip="10.0.0.1"), quotas={RATE: 4.0})])
    assert admitted(rates, "10.0.0.1", count=50, every_ms=0) == 4
    chosen.apply([])
    assert admitted(rates, "10.0.0.1", count=50, every_ms=0) == 50


def test_asking_an_address_changes_no_rate() -> None:
    rates = limits(**{"10.0.0.1": 5.0}).broker(1)
    assert [rates.asked_ip("10.0.0.1", count, NOW_MS)[0] for count in (10, 11, 10)] == [0, 200, 0]
    assert admitted(rates, "10.0.0.1", count=9, every_ms=0) == 9
    assert [rates.asked_ip("10.0.0.1", count, NOW_MS)[0] for count in (1, 2, 1)] == [0, 200, 0]


def test_listeners_and_brokers_have_rates_of_their_own() -> None:
    rates = limits().broker(1)
    assert [rates.listener_delay_ms("a", 2.0, NOW_MS) for _ in range(4)] == [0] * 4
    over = rates.listener_delay_ms("a", 2.0, NOW_MS)
    assert over == 500  # 5 where 4 fit into 2 s
    assert [rates.listener_delay_ms("b", None, NOW_MS) for _ in range(5)] == [0] * 5
    assert rates.listener_delay_ms("b", None, NOW_MS) == 200  # 11 where 10 fit for the broker


def test_an_address_that_is_quiet_for_an_hour_is_forgotten() -> None:
    rates = limits(default=1.0).broker(1)
    rates.record_ip("10.0.0.1", 1, NOW_MS)
    run_whole(rates.expiry(NOW_MS + IDLE_MS - 1))
    assert names(rates) == ["10.0.0.1"]
    run_whole(rates.expiry(NOW_MS + IDLE_MS))
    assert not names(rates)


def test_others_are_served_while_many_addresses_are_forgotten() -> None:
    rates = limits(default=1.0).broker(1)
    addresses = [f"10.0.{number // 250}.{number % 250}" for number in range(12_000)]
    for address in addresses:
        rates.record_ip(address, 1, NOW_MS)
    work = rates.expiry(NOW_MS + IDLE_MS)
    next(work)
    assert 0 < len(names(rates)) < len(addresses), "a part of them in one go"
    rates.record_ip(addresses[-1], 1, NOW_MS + IDLE_MS)  # meanwhile it is back
    run_whole(work)
    assert names(rates) == [addresses[-1]]


def test_what_is_not_served_is_taken_back_where_it_was_recorded() -> None:
    quotas = ConnectionQuotas(WINDOW)
    accepting, serving = quotas.broker(1), quotas.broker(2)
    for each in (accepting, serving):
        assert each.listener_delay_ms("main", 2.0, NOW_MS) == 0
    slot = accepting.began("main", recorded=accepting)
    slot.move(serving)
    slot.take_back_rate(NOW_MS)
    left = {name: rate.snapshot for name, rate in serving.rates.items()}
    slot.take_back_rate(NOW_MS)
    assert {name: rate.snapshot for name, rate in serving.rates.items()} == left
    # 5 would be one too many for 2 s; one of them was taken back twice.
    assert [accepting.listener_delay_ms("main", 2.0, NOW_MS) for _ in range(5)] == [0] * 5
    assert [serving.listener_delay_ms("main", 2.0, NOW_MS) for _ in range(4)][-1] > 0
