"""An event loop whose time is moved on by hand."""

import asyncio
from collections.abc import Awaitable, Callable


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop that is ahead of the clock by as much as a test says."""

    passed_s = 0.0

    def time(self) -> float:
        return super().time() + self.passed_s


def on_virtual_loop(test: Callable[[VirtualLoop], Awaitable[None]]) -> Callable[[], None]:
    """Return the test that runs on a loop of its own."""

    def run_test() -> None:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            loop = runner.get_loop()
            assert isinstance(loop, VirtualLoop)

            async def run() -> None:
                await test(loop)

            runner.run(run())

    return run_test


async def settled() -> None:
    """Wait until whatever can go on at once has done so."""
    for _ in range(10):
        await asyncio.sleep(0)
