"""The read-only part of the store interface, for quotas in a file."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.stores.questions import quotas_of

from kafka_quotas.core.errors import InvalidQuotaError, StoreRefusedError
from kafka_quotas.core.model.entity import EVERYTHING, Entity, FilterComponent, Match, QuotaFilter
from kafka_quotas.stores import open_store
from kafka_quotas.stores.store import Alteration, QuotaEntry, Store

RATE, FETCH = "producer_byte_rate", "consumer_byte_rate"
STATIC_FILE = """quota.producer.default=2M
quota.consumer.override="app:4M,batch:10MiB"
"""


class TestStatic:
    """The read-only part, for quotas in a file."""

    @pytest.fixture
    def static(self, tmp_path: Path) -> Iterator[Store]:
        file = tmp_path / "static.properties"
        file.write_text(STATIC_FILE)
        store = open_store(f"static:{file}")
        yield store
        store.close()

    def test_describes_defaults_and_overrides(self, static: Store) -> None:
        assert static.describe(EVERYTHING) == [
            QuotaEntry(entity=Entity.of(client_id="app"), quotas={FETCH: 4_000_000.0}),
            QuotaEntry(entity=Entity.of(client_id="batch"), quotas={FETCH: 10_485_760.0}),
            QuotaEntry(entity=Entity.of(client_id=None), quotas={RATE: 2_000_000.0}),
        ]
        assert quotas_of(static, Entity.of(client_id="app")) == {FETCH: 4_000_000.0}
        assert quotas_of(static, Entity.of(user="app")) == {}

    @pytest.mark.parametrize("validate_only", [False, True])
    def test_is_read_only(self, static: Store, validate_only: bool) -> None:
        with pytest.raises(StoreRefusedError, match="read-only"):
            static.alter([Alteration(entity=Entity.of(user="a"), changes={RATE: 1.0})], validate_only=validate_only)

    def test_watch_sees_the_file_change(self, static: Store, tmp_path: Path) -> None:
        before = static.watch(None, timeout_s=240)
        assert before is not None
        assert static.watch(before.revision, timeout_s=0) is None
        (tmp_path / "static.properties").write_text("quota.producer.default=3M\n")
        after = static.watch(before.revision, timeout_s=240)
        assert after is not None
        assert after.entries == (QuotaEntry(entity=Entity.of(client_id=None), quotas={RATE: 3_000_000.0}),)

    def test_refuses_filters_as_kafka_does(self, static: Store) -> None:
        with pytest.raises(InvalidQuotaError):
            static.describe(QuotaFilter(components=(FilterComponent(entity_type="group", match=Match.ANY),)))
