"""Which of several brokers is taken, by what connecting to them came to."""

import asyncio
from collections.abc import Awaitable, Callable

from kafka_quotas.enforcement.config.address import Address
from kafka_quotas.enforcement.proxy.brokers import KEPT_S, RECHECK_S, UpstreamHealth, takes_connections

FIRST, SECOND, THIRD = ALL = [Address(host=f"broker-{number}", port=9092) for number in (1, 2, 3)]


class Clock(asyncio.SelectorEventLoop):
    """An event loop whose time is moved on by hand."""

    passed_s = 0.0

    def time(self) -> float:
        return super().time() + self.passed_s


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


def on_clock(test: Callable[[Clock], Awaitable[None]]) -> None:
    with asyncio.Runner(loop_factory=Clock) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, Clock)

        async def run() -> None:
            await test(loop)

        runner.run(run())


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_the_first_is_taken_while_it_answers_and_asked_once_in_a_while() -> None:
    async def test(clock: Clock) -> None:
        brokers = Brokers(*ALL)
        assert [await brokers.taken() for _ in range(5)] == [FIRST] * 5
        assert brokers.tried == [FIRST]
        clock.passed_s += KEPT_S + 0.1
        assert await brokers.taken() == FIRST
        assert brokers.tried == [FIRST, FIRST]

    on_clock(test)


def test_the_next_is_taken_when_one_fails_and_the_one_that_failed_waits_until_it_is_back() -> None:
    async def test(clock: Clock) -> None:
        brokers = Brokers(SECOND, THIRD)
        assert await brokers.taken() in (SECOND, THIRD)
        assert brokers.health.preferred(ALL) == [SECOND, THIRD, FIRST]
        brokers.silent.add(FIRST)  # it holds nobody up, however long it says nothing
        clock.passed_s += RECHECK_S + 0.1
        assert await brokers.taken() == SECOND
        await settled()
        assert brokers.tried.count(FIRST) == 2
        brokers.health.close()
        await settled()
        brokers.silent.clear()
        brokers.up.add(FIRST)
        clock.passed_s += RECHECK_S + 0.1
        await brokers.taken()
        await settled()
        assert await brokers.taken() == FIRST

    on_clock(test)


def test_where_nobody_answers_nobody_is_taken_and_all_are_asked_again() -> None:
    async def test(clock: Clock) -> None:
        brokers = Brokers()
        assert await brokers.taken() is None
        clock.passed_s += KEPT_S + 0.1
        brokers.up.add(THIRD)
        assert await brokers.taken() == THIRD

    on_clock(test)


def test_a_connection_that_failed_counts_as_an_attempt() -> None:
    async def test(clock: Clock) -> None:
        del clock
        brokers = Brokers(*ALL)
        assert await brokers.taken() == FIRST
        brokers.health.failed(FIRST)
        assert await brokers.taken() == SECOND

    on_clock(test)


def test_what_cannot_be_looked_up_takes_no_connections() -> None:
    assert asyncio.run(takes_connections(Address(host="a" * 80, port=1))) is False
