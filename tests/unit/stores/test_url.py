"""Addresses of stores: what they mean, and what is said about those that can't be meant."""

from pathlib import Path

import pytest

from kafka_quotas.core.errors import UsageError
from kafka_quotas.stores import open_store
from kafka_quotas.stores.local.store import LocalStore
from kafka_quotas.stores.static import StaticStore
from kafka_quotas.stores.url import StoreKind, default_store_url, parse_store_url


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
