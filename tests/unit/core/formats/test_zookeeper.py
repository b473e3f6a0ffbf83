"""Paths, payloads and values in ZooKeeper beyond what the conformance lines pin."""

import pytest

from kafka_quotas.core.errors import InvalidQuotaError, StoreError
from kafka_quotas.core.formats.zookeeper import (
    decode_config,
    encode_config,
    entity_of_path,
    entity_path,
    format_value,
    parse_value,
)
from kafka_quotas.core.model.entity import Entity


@pytest.mark.parametrize(
    "entity",
    [Entity.of(), Entity.of(user="a", ip="1.2.3.4"), Entity.of(user="a", client_id="b", ip=None)],
    ids=["nothing", "user-and-ip", "all"],
)
def test_odd_combinations_have_no_path(entity: Entity) -> None:
    with pytest.raises(InvalidQuotaError):
        entity_path(entity)


@pytest.mark.parametrize(
    ("path", "expect"),
    [
        ("users/a+b", Entity.of(user="a b")),
        ("/config/users/<default>/clients/<default>", Entity.of(user=None, client_id=None)),
        ("users/users/clients/clients", Entity.of(user="users", client_id="clients")),
        ("ips/%3A%3A1", Entity.of(ip="::1")),
    ],
)
def test_paths_are_read_leniently(path: str, expect: Entity) -> None:
    assert entity_of_path(path) == expect


@pytest.mark.parametrize(
    "path",
    [
        "",
        "users",
        "users/a/clients",
        "topics/t",
        "clients/a/users/b",
        "users/a/clients/b/ips/c",
        "users/%",
        "users/%zz",
    ],
)
def test_other_paths_are_refused(path: str) -> None:
    with pytest.raises(StoreError, match="not the path of a quota entity"):
        entity_of_path(path)


@pytest.mark.parametrize(
    "data",
    [
        b'{"config":{"a":"b"}',
        b'{"config":{"a":NaN}}',
        b'{"config":{"a":01}}',
        b"\xff\xfe",
        b'{"config":{"a":"\xff"}}',
        b"[" * 100_000,
        b'{"config":null}',
        b"3",
        b" ",
    ],
)
def test_anything_without_a_config_object_is_empty(data: bytes) -> None:
    assert decode_config(data) == {}


@pytest.mark.parametrize("data", [b'\xef\xbb\xbf {"config":{"a":"\xc3\xa9"}}', b'\n\t{"config":{"a":"\xc3\xa9"}}\xff'])
def test_marks_blanks_and_rubbish_around_it_do_not_matter(data: bytes) -> None:
    assert decode_config(data) == {"a": "é"}


@pytest.mark.parametrize(
    ("value", "shown"),
    [("1.5e7", "1.5E7"), ("true", "true"), ('{"b":[1,"c"]}', '{"b":[1,"c"]}'), ('{"é":{}}', '{"é":{}}'), ("-7", "-7")],
)
def test_a_value_that_is_no_text_is_an_error(value: str, shown: str) -> None:
    with pytest.raises(StoreError) as raised:
        decode_config(f'{{"config":{{"a":{value}}}}}'.encode())
    assert raised.value.message == f"Expected `String` value, received {shown}"


def test_payloads_stay_writable_whatever_was_stored() -> None:
    stored = decode_config(b'{"config":{"SCRAM-SHA-256":"salt=\\ud800","k":"\\u00e9"}}')
    assert decode_config(encode_config(stored)) == stored


@pytest.mark.parametrize(
    ("key", "value", "expect"),
    [
        ("producer_byte_rate", 0.0, "0"),
        ("producer_byte_rate", 1000.0000005, "1000"),
        ("producer_byte_rate", 999.9999995, "1000"),
        ("producer_byte_rate", -1e-7, "0"),
        ("consumer_byte_rate", float("nan"), "0"),
        ("connection_creation_rate", 2147483647.0, "2147483647"),
        ("request_percentage", -1.0, "-1.0"),
        ("controller_mutation_rate", float("inf"), "Infinity"),
    ],
)
def test_values_as_they_are_written(key: str, value: float, expect: str) -> None:
    assert format_value(key, value) == expect


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("producer_byte_rate", 1.5),
        ("producer_byte_rate", -1.0),
        ("producer_byte_rate", 1e19),
        ("connection_creation_rate", 2147483648.0),
        ("burst", 1.0),
    ],
)
def test_values_that_can_not_be_written(key: str, value: float) -> None:
    with pytest.raises(InvalidQuotaError):
        format_value(key, value)


def test_stored_texts_are_read_as_java_doubles() -> None:
    assert parse_value("1.0E7") == 1e7
    assert parse_value(" 1024 ") == 1024.0
    with pytest.raises(StoreError, match="unexpected quota value: 'ten'"):
        parse_value("ten")
