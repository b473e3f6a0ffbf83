"""Changes to quotas are cut into requests that a controller takes."""

import pytest

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.stores.kafka.store import LARGEST_REQUEST, described_entries, request_batches
from kafka_quotas.stores.store import Alteration
from kafka_quotas.wire.client.admin import DescribedQuotas


def alterations(count: int, changes_each: int = 1) -> list[Alteration]:
    changes = {f"key{number}": 1.0 for number in range(changes_each)}
    return [Alteration(entity=Entity.of(user=f"u{number}"), changes=changes) for number in range(count)]


@pytest.mark.parametrize(
    ("count", "changes_each", "sizes"),
    [
        (0, 1, []),
        (LARGEST_REQUEST, 1, [LARGEST_REQUEST]),
        (LARGEST_REQUEST + 1, 1, [LARGEST_REQUEST, 1]),
        (7000, 3, [3333, 3333, 334]),
    ],
)
def test_requests_are_cut_by_their_changes(count: int, changes_each: int, sizes: list[int]) -> None:
    wanted = alterations(count, changes_each)
    batches = list(request_batches(wanted))
    assert [len(batch) for batch in batches] == sizes
    assert [alteration for batch in batches for alteration in batch] == wanted
    assert all(sum(len(alteration.changes) for alteration in batch) <= LARGEST_REQUEST for batch in batches)


def test_entries_and_keys_are_sorted_and_empty_ones_left_out() -> None:
    stored = (
        (Entity.of(user=None), {"b": 2.0, "a": 1.0}),
        (Entity.of(user="x"), {}),
        (Entity.of(user="a"), {"a": 3.0}),
    )
    entries = described_entries(DescribedQuotas(error_code=0, error_message=None, entries=stored))
    assert [(entry.entity.user, list(entry.quotas)) for entry in entries] == [("a", ["a"]), (None, ["a", "b"])]
