"""Reports cross the medium whole, and rubbish is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.enforcement.sharing.report import (
    VERSION,
    Entry,
    OtherVersionError,
    Report,
    name_hash,
    read_report,
    write_report,
)

ENTRY = Entry(bucket=2**64 - 1, total=1e13 + 0.5, rate=1024.0, recent=4096.0, age_ms=5500, waiting=24)


def report(**fields: object) -> Report:
    values: dict[str, object] = {
        "member": 7,
        "name": "host-1:9092",
        "fleet": name_hash("production"),
        "settings": name_hash("11 x 1 s", size=4),
        "sequence": 3,
        "heard": -1,
        "sent_ms": 1_763_745_300_123,
    }
    return Report(**(values | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "written",
    [
        report(),
        report(entries=(ENTRY, ENTRY)),
        report(leaves=True, heard=12),
        report(
            has_levels=True,
            entries=(Entry(bucket=1, total=0, rate=0, recent=0, age_ms=0, waiting=0, level=8.0, level_age_ms=9),),
        ),
    ],
)
def test_a_report_is_read_as_it_was_written(written: Report) -> None:
    assert read_report(write_report(written)) == written


def test_a_report_of_another_version_names_its_member() -> None:
    data = bytearray(write_report(report(member=99)))
    data[2] = VERSION + 1
    with pytest.raises(OtherVersionError) as error:
        read_report(bytes(data) + b"what only that version knows")
    assert (error.value.member, error.value.version) == (99, VERSION + 1)


def test_figures_beyond_any_usage_are_refused() -> None:
    for wrong in (float("nan"), float("inf"), -float("inf")):
        entry = Entry(bucket=1, total=wrong, rate=0, recent=0, age_ms=0, waiting=0)
        with pytest.raises(ProtocolError, match="figures that can't be"):
            read_report(write_report(report(entries=(entry,))))


@given(st.binary(max_size=200), st.integers(0, 200))
def test_rubbish_is_refused_in_one_way(data: bytes, kept: int) -> None:
    whole = write_report(report(entries=(ENTRY,)))
    for each in (data, whole[:kept] if kept < len(whole) else b"", whole + data[:1] + b"x"):
        with pytest.raises(ProtocolError):
            read_report(each)


def test_an_entry_takes_28_bytes() -> None:
    assert len(write_report(report(entries=(ENTRY,)))) - len(write_report(report())) == 28
