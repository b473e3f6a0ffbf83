"""The table of APIs: up to date, and in agreement with a list made by hand from Kafka's definitions."""

import pytest
from generators import api_table as generator
from generators import kafka_python_messages, kio_messages
from tests.support.frames.api_places import has_throttle

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.wire.protocol.api_table import API_TABLE
from kafka_quotas.wire.protocol.header import has_header_tags
from kafka_quotas.wire.proxying.throttle_time import throttle_needs_whole


def by_api(keys: dict[int, tuple[int, ...]]) -> dict[int, int]:
    """API key -> version, from the keys of each version."""
    return {key: version for version, each in keys.items() for key in each}


# The APIs by the first version whose response carries a throttle time, by place.
FIRST_FIELD = dict.fromkeys((21, 22, 24, 25, 26, *range(28, 36), 37, *range(42, 47), *range(48, 52), 56, 57), 0)
FIRST_FIELD |= dict.fromkeys((*range(59, 76), 80, 81, 82, *range(88, 93)), 0)
FIRST_FIELD |= by_api({1: (1, 10, *range(12, 17), 20, *range(76, 80)), 2: (2, 11, 19, 23), 3: (3, 8, 9)})
FIXED_PLACE = {47: 0, 39: 0, 40: 0}
VARIABLE_PLACE = {0: 1, 18: 1, 38: 0, 41: 0}
WITHOUT = {4, 5, 6, 7, 17, 27, 36, 52, 53, 54, 55, 58, 83, 84, 85, 86, 87}
# The APIs by the first version with a tag section in the response's header; 0 where not named, never for 17, 18, 47.
FLEXIBLE = by_api(
    {
        1: (27, 44, 48, 49, 53, 54, *range(76, 80)),
        2: (5, 21, 22, 29, 30, 31, *range(33, 44)),
        3: (7, 10, 16, 24, 25, 26, 28),
        4: (4, 12, 13, 14, 20, 23, 32),
        5: (15, 19),
        6: (2, 6, 9, 11),
        8: (8,),
        9: (0, 3),
        12: (1,),
    }
)
NEVER_FLEXIBLE = {17, 18, 47}
# API key -> first version whose response names brokers to clients.
ADDRESSES = {0: 10, 1: 16, 3: 0, 10: 0, 55: 2, 60: 0, 78: 1, 79: 1}


def test_the_committed_files_are_what_the_generator_writes():
    for path, render in generator.RENDERED.items():
        committed = path.read_text(encoding="utf-8")
        if generator.sources() not in committed:
            pytest.skip(f"{path} was made from other versions than {generator.sources()}, which are installed here")
        assert generator.is_current(committed, render()), path


def test_a_stale_table_is_reported_and_written_anew(tmp_path, capsys):
    table = tmp_path / "api_table.py"
    table.write_text("", encoding="utf-8")
    rendered = {table: lambda: "TABLE = {}\n"}
    assert generator.main(["--check"], rendered=rendered) == 1
    assert "is not what" in capsys.readouterr().err
    assert generator.main([], rendered=rendered) == 0
    assert generator.main(["--check"], rendered=rendered) == 0
    assert table.read_text(encoding="utf-8") == "TABLE = {}\n"


def test_keys_are_kafkas_without_gaps():
    assert sorted(API_TABLE) == list(range(93)) == list(ApiKey)
    assert all(key == api.key for key, api in API_TABLE.items())


def test_keys_of_the_table_are_plain_integers():
    """The daemon looks them up by the integers in headers, which is faster than by members of an enum."""
    assert {type(key) for key in API_TABLE} == {int}


def test_apis_are_named_as_in_kafkas_definitions():
    assert [API_TABLE[key].name for key in (0, 17, 23, 24, 46)] == [
        "Produce",
        "SaslHandshake",
        "OffsetForLeaderEpoch",
        "AddPartitionsToTxn",
        "ListPartitionReassignments",
    ]
    for key in kio_messages.api_names():
        assert kio_messages.response(key, API_TABLE[key].max_version).name == API_TABLE[key].name


@pytest.mark.parametrize("api_key", sorted(API_TABLE))
def test_throttle_times_start_where_kafkas_definitions_say(api_key: int):
    api = API_TABLE[api_key]
    first = (FIRST_FIELD | FIXED_PLACE | VARIABLE_PLACE).get(api_key)
    assert (first is None) == (api_key in WITHOUT)
    for version in range(api.min_version, api.max_version + 1):
        assert has_throttle(api_key, version) == (first is not None and version >= first), version
        expected = api_key in VARIABLE_PLACE and has_throttle(api_key, version)
        assert throttle_needs_whole(api_key, version) == expected, version
    if api_key in FIRST_FIELD:
        assert [layout.before for layout in api.throttle] == [()]


@pytest.mark.parametrize("api_key", sorted(API_TABLE))
def test_headers_carry_tags_from_the_version_that_kafkas_definitions_say(api_key: int):
    api = API_TABLE[api_key]
    if api_key in NEVER_FLEXIBLE:
        assert not has_header_tags(api_key, api.max_version)
    else:
        first = FLEXIBLE.get(api_key, 0)
        assert api.flexible_since == first
        assert has_header_tags(api_key, first)
        assert not has_header_tags(api_key, first - 1)
    assert API_TABLE[18].flexible_since == 3


@pytest.mark.parametrize("api_key", sorted(API_TABLE))
def test_brokers_are_named_where_kafkas_definitions_say(api_key: int):
    api = API_TABLE[api_key]
    assert (api.addresses[0].since if api.addresses else None) == ADDRESSES.get(api_key)
    for version in range(api.min_version, api.max_version + 1):
        expected = api_key in ADDRESSES and version >= ADDRESSES[api_key]
        assert (api.address_layout(version) is not None) == expected, version


def test_produce_and_fetch_are_handled_from_the_oldest_version_to_the_newest():
    produce, fetch = API_TABLE[0], API_TABLE[1]
    assert (produce.min_version, produce.max_version) == (0, 13)
    assert (fetch.min_version, fetch.max_version, fetch.handles(18), fetch.handles(19)) == (0, 18, True, False)
    assert fetch.address_layout(15) is None
    assert fetch.address_layout(16) is not None


def test_both_sources_agree_where_both_have_a_version():
    compared = 0
    for key in kio_messages.api_names():
        for version in kafka_python_messages.versions(key):
            if version not in kio_messages.versions(key):
                continue
            one, other = kio_messages.response(key, version), kafka_python_messages.response(key, version)
            assert generator.throttle_steps(one) == generator.throttle_steps(other), (key, version)
            assert generator.address_source(one) == generator.address_source(other), (key, version)
            assert one.is_flexible == other.is_flexible, (key, version)
            compared += 1
    assert compared > 150
