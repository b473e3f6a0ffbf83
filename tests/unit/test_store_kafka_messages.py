"""The quota messages: cut so that a controller takes them, and read back as they were written."""

import pytest
from kafka.protocol.admin.client_quotas import AlterClientQuotasRequest, DescribeClientQuotasRequest

from kafka_quotas.core.describe_filter import FilterComponent, Match, QuotaFilter
from kafka_quotas.core.entity import Entity
from kafka_quotas.stores.kafka_messages import LARGEST_REQUEST, alter_request, describe_request, request_batches
from kafka_quotas.stores.store import Alteration


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


@pytest.mark.parametrize("version", [0, 1])
def test_an_alter_request_says_what_was_meant(version: int) -> None:
    changes = {"producer_byte_rate": 2.5e9, "consumer_byte_rate": None}
    entity = Entity.of(user="\u00e9", client_id=None)
    request = alter_request([Alteration(entity=entity, changes=changes)], validate_only=True)
    again = AlterClientQuotasRequest.decode(request.encode(version=version), version=version)
    (entry,) = again.entries
    assert again.validate_only is True
    assert [(part.entity_type, part.entity_name) for part in entry.entity] == [("user", "\u00e9"), ("client-id", None)]
    assert [(op.key, op.value, op.remove) for op in entry.ops] == [
        ("producer_byte_rate", 2.5e9, False),
        ("consumer_byte_rate", 0.0, True),
    ]


@pytest.mark.parametrize("version", [0, 1])
def test_a_describe_request_says_what_was_meant(version: int) -> None:
    components = (
        FilterComponent(entity_type="user", match=Match.EXACT, name="a"),
        FilterComponent(entity_type="client-id", match=Match.DEFAULT),
        FilterComponent(entity_type="ip", match=Match.ANY),
    )
    request = describe_request(QuotaFilter(components=components, strict=True))
    again = DescribeClientQuotasRequest.decode(request.encode(version=version), version=version)
    assert again.strict is True
    assert [(part.entity_type, part.match_type, part.match) for part in again.components] == [
        ("user", 0, "a"),
        ("client-id", 1, None),
        ("ip", 2, None),
    ]
