"""Steps over fields: what each may cost, and in slices what they find at once."""

import pytest

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.wire.codec import skip as codec
from kafka_quotas.wire.codec.skip import (
    MAX_TAGS,
    SLICE,
    array,
    compact_array,
    compact_string,
    encode_unsigned_varint,
    finished,
    skip,
    skipping,
    string,
    tags,
)
from kafka_quotas.wire.proxying.produce import partition_results
from kafka_quotas.wire.proxying.topics import iter_topics


def test_a_structure_has_no_more_tagged_fields_than_any_message_defines() -> None:
    section = bytes((MAX_TAGS,)) + b"\5\1x" * MAX_TAGS
    assert tags(section, 0, len(section)) == len(section)
    with pytest.raises(ProtocolError, match="9 tagged fields where 8 may be"):
        tags(bytes((MAX_TAGS + 1,)) + bytes(100), 0, 100)


def test_a_step_is_made_once_however_many_messages_have_it() -> None:
    assert array(4, string) is array(4, string)
    assert compact_array(4, tags) is compact_array(4, tags)
    produced = bytes.fromhex("00000000 00000007 00000002 000161 00000000 000162 00000000 00000000")
    named = bytes.fromhex("00000000 00000007 00000000 00000002 0000 000161 00000000 0000 000162 00000000")
    frames = [len(frame[4:]).to_bytes(4, "big") + frame[4:] for frame in (produced, named)]
    kept = []
    for _ in range(2):
        list(partition_results(1, frames[0]))
        list(iter_topics(0, frames[1]))
        kept.append((len(codec._ARRAYS), len(codec._FINDS_NOTHING)))
    assert kept[0] == kept[1], "nothing is kept of a message"


@pytest.mark.parametrize("count", [0, 1, SLICE - 1, SLICE, 3 * SLICE + 7])
def test_slices_find_what_one_walk_finds(count: int) -> None:
    inner = encode_unsigned_varint(count + 1) + b"\2x\0" * count + b"\0"
    for layout, data in (
        ((4, compact_array(compact_string, tags)), bytes(4) + inner[:-1]),
        ((compact_array(2, compact_array(compact_string, tags), tags), 1), b"\3" + 2 * (bytes(2) + inner) + b"z"),
    ):
        work = skipping(layout, data, 0, len(data))
        slices = sum(1 for _ in work)
        assert slices >= count // SLICE
        assert finished(skipping(layout, data, 0, len(data))) == skip(layout, data, 0, len(data)) == len(data)
        for cut in {1, len(data) // 2, len(data) - 1}:
            with pytest.raises(ProtocolError):
                finished(skipping(layout, data, 0, cut))
