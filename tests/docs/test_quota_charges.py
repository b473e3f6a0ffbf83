"""The table of charges in docs/reference/enforcement.md says of every API what `QUOTA_CHARGES` says."""

from pathlib import Path

from kafka_quotas.core.quotas.quota_charges import QUOTA_CHARGES, Mutation, RequestTime
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.wire.protocol.api_table import API_TABLE

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "enforcement.md"
BYTES = {QuotaType.PRODUCE: "`producer_byte_rate`: the request", QuotaType.FETCH: "`consumer_byte_rate`: the response"}
TIMES = {
    RequestTime.CHARGED: "the client's",
    RequestTime.UNLESS_UNANSWERED: "the client's; exempt without acknowledgement",
    RequestTime.UNLESS_REPLICA: "the client's; exempt where a broker fetches (`internal_principals`)",
    RequestTime.UNLESS_BROKER: "exempt where a broker asks (`internal_principals`), else the client's",
    RequestTime.NOT_SERVED: "nobody: no broker serves them, it closes the connection",
}
MUTATIONS = {
    Mutation.NONE: "",
    Mutation.REQUESTED: "those that the request names",
    Mutation.CREATED: "those of topics that the broker creates in the client's name because of it",
}


def rows() -> dict[str, list[str]]:
    """By API, the other cells of its row."""
    section = PAGE.read_text(encoding="utf-8").partition("## What each API is charged with")[2].partition("\n## ")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    named = [(name, others) for names, *others in cells[2:] for name in names.split(", ")]
    assert len(dict(named)) == len(named), "an API has two rows"
    return dict(named)


def test_every_api_has_a_row_that_says_what_it_is_charged_with() -> None:
    found = rows()
    assert set(found) == {API_TABLE[key].name for key in QUOTA_CHARGES}
    for key, row in QUOTA_CHARGES.items():
        size, time, partitions = found[API_TABLE[key].name]
        assert size == ("" if row.byte_rate is None else BYTES[row.byte_rate])
        assert time == TIMES[row.request_time]
        assert partitions.partition(";")[0] == MUTATIONS[row.mutation]


def test_the_versions_that_refuse_are_those_of_the_table() -> None:
    refusing = {API_TABLE[key].name: row for key, row in QUOTA_CHARGES.items() if row.strict_since is not None}
    found = rows()
    assert len(refusing) == 3
    for name, row in refusing.items():
        assert f"{name} {row.strict_since}" in found[name][2]
