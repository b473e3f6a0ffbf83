"""What is found about one entity alone agrees with the resolution over it."""

from itertools import product

import pytest

from kafka_quotas.commands.quotas.quota_checks import odd_entries
from kafka_quotas.commands.quotas.quota_status import quota_statuses
from kafka_quotas.core.model.entity import ABSENT, Entity
from kafka_quotas.core.model.quota_key import QUOTA_KEYS
from kafka_quotas.stores.store import QuotaEntry

NAMES = (ABSENT, None, "", "app")
ENTITIES = [Entity.of(user=user, client_id=client_id) for user, client_id in product(NAMES, NAMES)][1:]
STATUS_CHECKS = {"shadowed", "partly-shadowed", "ignored-key"}


@pytest.mark.parametrize("entity", [*ENTITIES, Entity.of(ip=None), Entity.of(ip="10.0.0.1")], ids=str)
@pytest.mark.parametrize("key", [*QUOTA_KEYS, "no.such.key"])
def test_a_quota_alone_has_a_finding_exactly_if_it_does_not_win(entity: Entity, key: str) -> None:
    entry = QuotaEntry(entity=entity, quotas={key: 5e6})
    found = STATUS_CHECKS & {finding.check for finding in odd_entries([entry])}
    assert bool(found) == any(not status.wins for status in quota_statuses([entry]))
