"""The addresses of stores and of servers, and how long servers are waited for."""

from pathlib import Path

import pytest
from tests.support.processes.run_cli import run_cli

from kafka_quotas.core.errors import UsageError
from kafka_quotas.stores import open_store
from kafka_quotas.stores.address import (
    REMEMBERED_S,
    ServerAddress,
    StoreKind,
    StoreSettings,
    Timeouts,
    UnresponsiveBrokers,
    default_store_url,
    parse_store_url,
    timeouts,
)
from kafka_quotas.stores.local import LocalStore
from kafka_quotas.stores.static import StaticStore


@pytest.mark.parametrize(
    ("url", "whole"),
    [
        ("kafka://broker", "kafka://broker:9092"),
        ("kafka://b1:9092,b2:9093", "kafka://b1:9092,b2:9093"),
        ("kafka://[::1]:9092,[::2]", "kafka://[::1]:9092,[::2]:9092"),
        ("kafka:b1:9094", "kafka://b1:9094"),
        ("KAFKA://b1/", "kafka://b1:9092"),
        ("zk://z1,z2:2182", "zk://z1:2181,z2:2182"),
        ("zk://z1/", "zk://z1:2181"),
        ("zookeeper://z1:2181/kafka/east/", "zk://z1:2181/kafka/east"),
        ("local:/var/q.db", "local:/var/q.db"),
        ("local:///var/q.db", "local:/var/q.db"),
        ("static:/etc/kafka/server.properties", "static:/etc/kafka/server.properties"),
        (" local:/var/with space:colon ", "local:/var/with space:colon"),
    ],
)
def test_addresses_are_made_whole(url: str, whole: str) -> None:
    assert str(parse_store_url(url)) == whole
    assert parse_store_url(whole) == parse_store_url(url)


def test_paths_are_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert parse_store_url("local:q.db").path == tmp_path / "q.db"
    assert parse_store_url("local:../q.db").path == tmp_path.parent / "q.db"
    assert parse_store_url("static:~/q").path == tmp_path / "home" / "q"


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("redis://host", "local:PATH, zk://"),
        ("broker:9092", "kafka://broker:9092"),
        ("quotas.db", "local:quotas.db"),
        ("./quotas", "local:./quotas"),
        ("", "a store is"),
        ("local:", "local:PATH"),
        ("static:", "static:PATH"),
        ("kafka://", "kafka://host:9092"),
        ("kafka://b1:9092/chroot", "kafka://host:9092"),
        ("kafka://b1:0", "kafka://host:9092"),
        ("kafka://b1:65536", "kafka://host:9092"),
        ("kafka://b1,,b2", "kafka://host:9092"),
        ("kafka://b1:port", "kafka://host:9092"),
        ("zk://user:secret@z1", "--command-config"),
    ],
)
def test_refuses_other_addresses_with_a_hint(url: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_store_url(url)
    assert hint in (caught.value.hint or "")
    assert "secret" not in caught.value.message


def test_opens_each_kind_of_file(tmp_path: Path) -> None:
    local, static = open_store(f"local:{tmp_path}/q.db"), open_store(f"static:{tmp_path}/s")
    assert isinstance(local, LocalStore)
    assert isinstance(static, StaticStore)
    assert local.url == f"local:{tmp_path}/q.db"
    assert not list(tmp_path.iterdir())
    local.close()
    static.close()


def test_without_an_address_it_is_the_file_in_the_data_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    store = open_store(None)
    assert store.url == str(default_store_url())
    assert default_store_url().path.is_relative_to(tmp_path)
    store.close()


def test_server_stores_open_without_a_server() -> None:
    for url in ("kafka://127.0.0.1:1", "zk://127.0.0.1:1/kafka"):
        store = open_store(url)
        assert store.url == url
        store.close()


def test_every_kind_has_a_scheme() -> None:
    assert {parse_store_url(f"{kind.value}:x").kind for kind in StoreKind} == set(StoreKind)


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
