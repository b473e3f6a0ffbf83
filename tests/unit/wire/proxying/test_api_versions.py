"""ApiVersions responses by their bytes."""

import pytest
from tests.support.frames.framing import hex_frame

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.wire.proxying.api_versions import clamp, is_unsupported_version_answer, unsupported_version_answer


@pytest.mark.parametrize(
    ("version", "before", "after"),
    [
        pytest.param(
            0,
            "00000007 0000 00000002 0000 0003 000c 0001 0004 0063",
            "00000007 0000 00000002 0000 0003 000c 0001 0004 0012",
            id="the maximum of Fetch",
        ),
        pytest.param(
            2,
            "00000007 0000 00000003 0001 0063 0064 2711 0000 0063 0012 0000 0004 00000064",
            "00000007 0000 00000002 2711 0000 0063 0012 0000 0004 00000064",
            id="an API that starts above ours goes, one that we don't know stays",
        ),
        pytest.param(
            0,
            "00000007 0000 00000002 0000 0003 000c 0034 0000 0001",
            "00000007 0000 00000001 0000 0003 000c",
            id="what controllers say to each other is no client's affair",
        ),
        pytest.param(
            3,
            "00000007 0000 03 0001 0004 0063 01 05 01 aa 0000 0000 000d 00 00000064 01 01 08 0000000000000001",
            "00000007 0000 03 0001 0004 0012 01 05 01 aa 0000 0000 000d 00 00000064 01 01 08 0000000000000001",
            id="tags of entries and of the response stay",
        ),
        pytest.param(
            3,
            "00000007 0023 00000001 0012 0000 0003",
            "00000007 0023 00000001 0012 0000 0003",
            id="an unsupported version is answered in the form of version 0",
        ),
        pytest.param(
            3, "00000007 0023 00000001 0012 0000 0009", "00000007 0023 00000001 0012 0000 0004", id="and clamped"
        ),
        pytest.param(3, "00000007 002a 01 00000000 00", "00000007 002a 01 00000000 00", id="another error, no APIs"),
        pytest.param(1, "00000007 0000 00000000 00000000", "00000007 0000 00000000 00000000", id="no APIs at all"),
    ],
)
def test_maxima_are_lowered_and_all_else_stays(version: int, before: str, after: str):
    assert clamp(hex_frame(before), version) == hex_frame(after)


def test_a_count_that_needs_two_bytes_loses_one_with_the_entries():
    entries = "2711 0000 0063 00" * 126 + "0001 0063 0064 00" * 3
    before = "00000007 0000 8201" + entries + "00000000 00"
    after = "00000007 0000 7f" + "2711 0000 0063 00" * 126 + "00000000 00"
    assert clamp(hex_frame(before), 3) == hex_frame(after)


def test_our_own_answer_names_the_versions_to_ask_with():
    frame = unsupported_version_answer(-2)
    assert frame == hex_frame("fffffffe 0023 00000001 0012 0000 0004")
    assert is_unsupported_version_answer(frame, 8, len(frame))
    assert clamp(frame, 4) == frame


@pytest.mark.parametrize(
    ("version", "text"),
    [
        (0, "00000007 00"),
        (0, "00000007 0000 7fffffff"),
        (0, "00000007 0000 fffffffe"),
        (3, "00000007 0000 03 0001 0004 0012 00"),
        (3, "00000007 0000 02 0001 0004 0012 01"),
    ],
)
def test_a_response_that_can_not_be_is_refused(version: int, text: str):
    with pytest.raises(ProtocolError):
        clamp(hex_frame(text), version)
    with pytest.raises(ProtocolError):
        clamp(hex_frame(text) + b"\0", version)
