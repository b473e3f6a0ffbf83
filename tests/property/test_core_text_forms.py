"""Whatever is written in one of Kafka's text forms reads back as what it was."""

import math
import struct

from hypothesis import given
from hypothesis import strategies as st

from kafka_quotas.core.formats.zookeeper import (
    decode_config,
    encode_config,
    entity_of_path,
    entity_path,
    format_value,
    parse_value,
    znode_path,
)
from kafka_quotas.core.java import double_text, parse_double
from kafka_quotas.core.model.entity import DEFAULT_NAME, Entity, desanitize, ipv4_literal, ipv6_literal, sanitize
from kafka_quotas.core.model.value_format import format_number

NAMES = st.text()
DEFAULT_OR_NAME = st.none() | NAMES
ENTITIES = st.one_of(
    st.builds(lambda user: Entity.of(user=user), DEFAULT_OR_NAME),
    st.builds(lambda client_id: Entity.of(client_id=client_id), DEFAULT_OR_NAME),
    st.builds(lambda user, client_id: Entity.of(user=user, client_id=client_id), DEFAULT_OR_NAME, DEFAULT_OR_NAME),
    st.builds(lambda ip: Entity.of(ip=ip), DEFAULT_OR_NAME),
)
ANY_DOUBLE = st.integers(0, 2**64 - 1).map(lambda bits: float(struct.unpack(">d", bits.to_bytes(8, "big"))[0]))
DOUBLES = st.one_of(st.floats(allow_nan=False), ANY_DOUBLE.filter(lambda value: not math.isnan(value)))


@given(NAMES)
def test_sanitized_names_read_back(name: str) -> None:
    sanitized = sanitize(name)
    assert desanitize(sanitized) == name
    assert sanitized != DEFAULT_NAME
    assert set(sanitized) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_%")


@given(NAMES, NAMES)
def test_two_names_never_share_a_sanitized_form(one: str, other: str) -> None:
    assert (sanitize(one) == sanitize(other)) == (one == other)


@given(ENTITIES)
def test_entity_paths_read_back(entity: Entity) -> None:
    assert entity_of_path(entity_path(entity)) == entity
    assert entity_of_path(znode_path(entity)) == entity


@given(ENTITIES)
def test_what_people_read_of_an_entity_reads_back(entity: Entity) -> None:
    assert Entity.from_text(str(entity)) == entity


@given(st.dictionaries(st.text(), st.text()))
def test_configs_read_back(config: dict[str, str]) -> None:
    assert decode_config(encode_config(config)) == config


@given(DOUBLES)
def test_java_doubles_read_back(value: float) -> None:
    text = double_text(value)
    assert parse_double(text) == value
    assert text.startswith("-") == (math.copysign(1.0, value) < 0)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_plain_numbers_read_back(value: float) -> None:
    text = format_number(value)
    assert float(text) == value
    assert "e" not in text


@given(st.integers(0, 2**53))
def test_whole_quotas_read_back_from_zookeeper(value: int) -> None:
    assert format_value("producer_byte_rate", float(value)) == str(value)
    assert parse_value(str(value)) == value


@given(st.ip_addresses(v=4))
def test_ipv4_addresses_are_literals(address: object) -> None:
    assert ipv4_literal(str(address)) == address.packed  # type: ignore[attr-defined]


@given(st.ip_addresses(v=6))
def test_ipv6_addresses_are_literals(address: object) -> None:
    assert ipv6_literal(str(address)) == address.packed  # type: ignore[attr-defined]
