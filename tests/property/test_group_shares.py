"""Groups in three levels against an oracle: everybody gets what it is guaranteed, and no limit is exceeded."""

from random import Random

import pytest
from tests.support.daemon.group_shares import (
    Oracle,
    Workers,
    by_group,
    client_ids,
    limiters_of,
    measured,
    random_groups,
)

from kafka_quotas.core.groups.group import GroupTree
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.enforcement.config.client_policy import PolicyFile
from kafka_quotas.enforcement.quotas.quota_registry import QuotaRegistry

WITHIN = 0.02


def require_shares(seed: int, clients: int, *, workers: int = 0) -> None:
    groups, counts = random_groups(Random(seed), clients)
    tree = GroupTree(groups)
    if workers:
        pool = Workers(workers, tree)
        limiter_of, pass_time = pool.limiter_of, pool.pass_time
    else:
        registry = QuotaRegistry(QuotaWindow(samples=11, window_s=1))
        registry.replace(PolicyFile(groups=tree))
        limiter_of, pass_time = limiters_of(registry.broker(0)), None
    request_bytes = 1000 if clients > 1000 else 4000
    # Each client comes once in a cycle: whole ones are measured, after those in which all come together.
    cycle_s = sum(counts.values()) * request_bytes / 1e6

    # A second's burst, which a group may have saved up or owe at either end, is less than 1 % of the rest.
    seconds = (30 + 4 * cycle_s, 150 + 14 * cycle_s)
    of_clients = measured(
        limiter_of, client_ids(counts), seconds=seconds, request_bytes=request_bytes, pass_time=pass_time
    )
    got = by_group(of_clients, tree)

    # Where a share is close to a guaranteed rate the wait is the smaller one of two that vary, so it is a little more.
    shares = Oracle(tree, counts).shares()
    assert got == pytest.approx(shares, rel=2 * WITHIN)
    assert got["team"] == pytest.approx(shares["team"], rel=WITHIN)
    for group in tree.groups:
        for _, _, limit, guaranteed in group.rates():
            assert got[group.name] <= (limit or float("inf")) * (1 + WITHIN)
            assert got[group.name] >= (guaranteed or 0.0) * (1 - WITHIN)


@pytest.mark.parametrize("seed", range(3))
def test_groups_get_the_shares_that_an_oracle_computes(seed: int) -> None:
    require_shares(seed, 100)


def test_ten_thousand_clients_get_the_shares_that_an_oracle_computes() -> None:
    require_shares(3, 10_000)


@pytest.mark.parametrize(("seed", "clients"), [(0, 100), (3, 10_000)])
def test_clients_of_two_workers_get_the_shares_that_an_oracle_computes(seed: int, clients: int) -> None:
    require_shares(seed, clients, workers=2)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5, 100))
def test_many_groups_get_the_shares_that_an_oracle_computes(seed: int) -> None:
    require_shares(seed, Random(seed).choice((100, 1000, 10_000)))
