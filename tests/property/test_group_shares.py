"""Groups in three levels against an oracle: everybody gets what it is guaranteed, and no limit is exceeded.

The clients are greedy, and go through a daemon's limiters on a virtual clock.
"""

import heapq
import itertools
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

import pytest
from tests.support.core.virtual_clock import VirtualClock
from tests.support.daemon.proxy_quotas import proxy_quotas

from kafka_quotas.core.groups.group import Group, GroupMember, GroupRates, GroupTree
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.quota_manager import Limiter
from kafka_quotas.enforcement.config.client_policy import PolicyFile
from kafka_quotas.enforcement.quotas.broker_quotas import BrokerQuotas
from kafka_quotas.enforcement.quotas.quota_registry import QuotaRegistry
from kafka_quotas.enforcement.sharing.charges import SharedCharge, SharedCharges
from kafka_quotas.enforcement.sharing.worker import TICK_S

WITHIN = 0.02
KEY = "producer_byte_rate"
REQUEST_BYTES: Final = 1000
TICK_MS: Final = round(1000 * TICK_S)
_STEPS = 30
"""Halvings of a rate, which leave less than a byte of a second, in each of three levels within each other."""


def member_of(name: str) -> GroupMember:
    """The clients that are called after a group."""
    return GroupMember(client_id_prefix=f"{name}:")


def client_ids(counts: Counter[str]) -> list[str]:
    """The client-ids of this number of clients of each group."""
    return [f"{name}:{number}" for name, count in counts.items() for number in range(count)]


def random_groups(random: Random, clients: int) -> tuple[list[Group], Counter[str]]:
    """Return three levels of groups, whose limits and guaranteed rates fit together, and the clients of each."""
    groups, counts = [Group(name="team", producer_byte_rate=1_000_000.0)], Counter[str]()
    names = []
    for app in range(random.randint(2, 5)):
        name = f"team/app{app}"
        rate = random.choice((None, 50_000.0, 150_000.0))
        limit = None if rate is None or random.random() < 0.6 else rate * random.uniform(1, 3)
        groups.append(_group(name, rate, limit))
        for part in range(random.choice((0, 2, 3))):
            inner = None if rate is None else rate / 4
            groups.append(_group(f"{name}/p{part}", inner, None if random.random() < 0.7 else 60_000.0))
            names.append(groups[-1].name)
        names.append(name)
    for name in names:
        counts[name] = max(5, round(clients * random.random() ** 2 / len(names) * 3))
    return groups, counts


def _group(name: str, guaranteed: float | None, limit: float | None) -> Group:
    return Group(
        name=name,
        members=(member_of(name),),
        producer_byte_rate=limit,
        guaranteed=GroupRates(producer_byte_rate=guaranteed),
    )


@dataclass(frozen=True)
class Oracle:
    """The shares of groups if all their clients always have something to send, in requests of one size.

    A client that waits for a limit sends once in the time in which each of them does, so all have the same rate, but
    those of a group that is guaranteed more: they have what it is guaranteed.
    """

    tree: GroupTree
    counts: Counter[str]

    def shares(self) -> dict[str, float]:
        """The rate of each group, those within it included."""
        found: dict[str, float] = {}
        for group in self.tree.within(None):
            self._share(group, 0.0, found)
        return found

    def _share(self, group: Group, rate: float, found: dict[str, float]) -> float:
        """Fill in the shares of a group whose surroundings allow each client a rate, and return its own."""
        guaranteed, limit = group.guaranteed.by_key.get(KEY), group.by_key.get(KEY)
        if guaranteed is not None:
            rate = max(rate, self._rate_for(group, guaranteed))
        if limit is not None:
            rate = self._rate_for(group, limit) if group.parent is None else min(rate, self._rate_for(group, limit))
        total = self.counts[group.name] * rate
        total += sum(self._share(each, rate, found) for each in self.tree.within(group.name))
        found[group.name] = total
        return total

    def _rate_for(self, group: Group, total: float) -> float:
        """Return the rate per client at which a group takes a total, or the largest if it never takes so much."""
        low, high = 0.0, total
        for _ in range(_STEPS):
            middle = (low + high) / 2
            taken = self.counts[group.name] * middle
            taken += sum(self._share(each, middle, {}) for each in self.tree.within(group.name))
            low, high = (middle, high) if taken < total else (low, middle)
        return high


def limiters_of(broker: BrokerQuotas) -> Callable[[str], Limiter]:
    """The limiters of client-ids at one broker."""
    return lambda client_id: broker.client("u", client_id).produce


def measured(
    limiter_of: Callable[[str], Limiter],
    clients: Sequence[str],
    *,
    seconds: tuple[float, float],
    pass_time: Callable[[int], None] | None = None,
) -> Counter[str]:
    """Return the bytes per second that each client got between two times, while all of them send all they may.

    `pass_time` is called with the time in ms before each request.
    """
    random, got = Random(7), Counter[str]()
    limiters = {each: limiter_of(each) for each in clients}
    due = [(random.random() * 1000, name) for name in clients]
    heapq.heapify(due)
    begin_ms, end_ms = (1000 * each for each in seconds)
    while due[0][0] < end_ms:
        at_ms, name = heapq.heappop(due)
        if pass_time is not None:
            pass_time(int(at_ms))
        throttle_ms = limiters[name].record(REQUEST_BYTES, int(at_ms))
        if at_ms >= begin_ms:
            got[name] += REQUEST_BYTES
        # Less than a millisecond apart, or those with whole ones would meet again and again in one order.
        heapq.heappush(due, (at_ms + max(throttle_ms, 1) + random.random(), name))
    return Counter({name: round(amount * 1000 / (end_ms - begin_ms)) for name, amount in got.items()})


class Workers:
    """Processes with the same groups that tell each other what they charge, as the workers of a daemon do."""

    def __init__(self, count: int, tree: GroupTree) -> None:
        clock, window = VirtualClock(0), QuotaWindow(samples=11, window_s=1)
        self._quotas = [proxy_quotas(clock=clock, window=window) for _ in range(count)]
        for each in self._quotas:
            each.registry.replace(PolicyFile(groups=tree))
        self._shared = [SharedCharges(each) for each in self._quotas]
        self._heard: deque[tuple[int, SharedCharges, list[SharedCharge]]] = deque()
        self._next_ms = 0
        self._turn = itertools.count()

    def limiter_of(self, client_id: str) -> Limiter:
        """The limiter of a client that connects to the next worker in turn."""
        quotas = self._quotas[next(self._turn) % len(self._quotas)]
        return quotas.registry.broker(0).client("u", client_id).produce

    def pass_time(self, now_ms: int) -> None:
        """Exchange what was charged every tick: it comes to the parent in one, and from there in the next."""
        while self._next_ms <= now_ms:
            at_ms, self._next_ms = self._next_ms, self._next_ms + TICK_MS
            while self._heard and self._heard[0][0] <= at_ms:
                _, shared, charges = self._heard.popleft()
                shared.record(charges, at_ms)
            for shared in self._shared:
                charges = shared.take(at_ms)
                self._heard.extend((at_ms + 2 * TICK_MS, each, charges) for each in self._shared if each is not shared)


def by_group(rates: Counter[str], tree: GroupTree) -> dict[str, float]:
    """Return the rates of clients summed up for each group around them."""
    found = Counter[str]()
    for client_id, rate in rates.items():
        for group in tree.chain(client_id.partition(":")[0]):
            found[group.name] += rate
    return dict(found)


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
    # Each client comes once in a cycle: whole ones are measured, after those in which all come together.
    cycle_s = sum(counts.values()) * REQUEST_BYTES / 1e6

    # A second's burst, which a group may have saved up or owe at either end, is less than 1 % of the rest.
    seconds = (30 + 8 * cycle_s, 150 + 38 * cycle_s)
    got = by_group(measured(limiter_of, client_ids(counts), seconds=seconds, pass_time=pass_time), tree)

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
