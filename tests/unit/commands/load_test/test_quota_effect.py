"""Quotas that a run sets, and which of them its clients get, before the load starts."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from kafka_quotas.commands.load_test.comparison import check_effect
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.loadtest.plan.plan import ClientName
from kafka_quotas.stores import open_store
from kafka_quotas.stores.store import Alteration

RATE = "producer_byte_rate"
GREEDY, MODEST = (Entity.of(client_id=name) for name in ("greedy", "modest"))
DEFAULT_PAIR = Entity.of(user=None, client_id=None)
NAMES = [ClientName(user=None, client_id=name) for name in ("greedy", "modest")]


def warnings(folder: Path, stored: Mapping[Entity, float], wanted: Sequence[Entity]) -> list[str]:
    """What is said of quotas of 2 MB/s for these entities, over those that are stored."""
    store, said = open_store(f"local:{folder / 'quotas.db'}"), list[str]()
    store.alter([Alteration(entity=entity, changes={RATE: value}) for entity, value in stored.items()])
    try:
        check_effect(store, [(entity, {RATE: 2e6}) for entity in wanted], NAMES, warn=said.append)
    finally:
        store.close()
    return said


def test_quotas_that_clients_get_are_not_mentioned(tmp_path: Path) -> None:
    assert warnings(tmp_path, {}, [GREEDY, MODEST]) == []
    assert warnings(tmp_path, {GREEDY: 2e6}, [GREEDY]) == []


def test_a_quota_that_a_more_specific_one_shadows_is_named(tmp_path: Path) -> None:
    pair = Entity.of(user=None, client_id="greedy")

    (said,) = warnings(tmp_path, {pair: 1e6}, [GREEDY, MODEST])

    assert said.startswith("client-id greedy: ")
    assert "1 MB/s" in said
    assert "remove producer_byte_rate" in said


def test_a_run_of_which_no_client_gets_a_quota_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no client of the run gets any of the quotas that it sets: client-id greedy"):
        warnings(tmp_path, {DEFAULT_PAIR: 1e6}, [GREEDY, MODEST])
    (tmp_path / "other").mkdir()
    with pytest.raises(UsageError, match=r"no client of the run gets any of the quotas that it sets$"):
        warnings(tmp_path / "other", {}, [Entity.of(client_id="somebody else")])
