"""Which of several brokers is taken, by what connecting to them came to."""

import asyncio

from tests.support.core.virtual_loop import VirtualLoop, on_virtual_loop, settled

from kafka_quotas.enforcement.config.address import Address
from kafka_quotas.enforcement.proxy.brokers import KEPT_S, RECHECK_S, UpstreamHealth, takes_connections

FIRST, SECOND, THIRD = ALL = [Address(host=f"broker-{number}", port=9092) for number in (1, 2, 3)]


class Brokers:
    """Brokers that answer, refuse, or (`silent`) never say anything."""

    def __init__(self, *up: Address) -> None:
        self.up = set(up)
        self.silent: set[Address] = set()
        self.tried: list[Address] = []
        self.health = UpstreamHealth(probe=self._probe)

    async def _probe(self, address: Address) -> bool:
        self.tried.append(address)
        if address in self.silent:
            await asyncio.Event().wait()
        return address in self.up

    async def taken(self) -> Address | None:
        return await self.health.first_answering(ALL)


@on_virtual_loop
async def test_the_first_is_taken_while_it_answers_and_asked_once_in_a_while(loop: VirtualLoop) -> None:
    brokers = Brokers(*ALL)
    assert [await brokers.taken() for _ in range(5)] == [FIRST] * 5
    assert brokers.tried == [FIRST]
    loop.passed_s += KEPT_S + 0.1
    assert await brokers.taken() == FIRST
    assert brokers.tried == [FIRST, FIRST]


@on_virtual_loop
async def test_the_next_is_taken_when_one_fails_and_the_one_that_failed_waits_until_it_is_back(
    loop: VirtualLoop,
) -> None:
    brokers = Brokers(SECOND, THIRD)
    assert await brokers.taken() in (SECOND, THIRD)
    assert brokers.health.preferred(ALL) == [SECOND, THIRD, FIRST]
    brokers.silent.add(FIRST)  # it holds nobody up, however long it says nothing
    loop.passed_s += RECHECK_S + 0.1
    assert await brokers.taken() == SECOND
    await settled()
    assert brokers.tried.count(FIRST) == 2
    brokers.health.close()
    await settled()
    brokers.silent.clear()
    brokers.up.add(FIRST)
    loop.passed_s += RECHECK_S + 0.1
    await brokers.taken()
    await settled()
    assert await brokers.taken() == FIRST


@on_virtual_loop
async def test_where_nobody_answers_nobody_is_taken_and_all_are_asked_again(loop: VirtualLoop) -> None:
    brokers = Brokers()
    assert await brokers.taken() is None
    loop.passed_s += KEPT_S + 0.1
    brokers.up.add(THIRD)
    assert await brokers.taken() == THIRD


@on_virtual_loop
async def test_a_connection_that_failed_counts_as_an_attempt(loop: VirtualLoop) -> None:
    brokers = Brokers(*ALL)
    assert await brokers.taken() == FIRST
    brokers.health.failed(FIRST)
    assert await brokers.taken() == SECOND


def test_what_cannot_be_looked_up_takes_no_connections() -> None:
    assert asyncio.run(takes_connections(Address(host="a" * 80, port=1))) is False
