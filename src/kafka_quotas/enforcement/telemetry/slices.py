"""Work over everything that the daemon keeps, done a little at a time.

Such work is a generator that knows nothing of event loops: between two of its slices anything may happen. Who serves
clients drives it with `run_sliced`, who serves nobody, at the start or the end, with `run_whole`.
"""

import asyncio
from collections.abc import Callable, Generator
from typing import TypeVar

T = TypeVar("T")


async def run_sliced(work: Generator[None, None, T]) -> T:
    """Return what a work comes to. The event loop serves everybody who waits between two slices."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result
        await asyncio.sleep(0)


def run_whole(work: Generator[None, None, T]) -> T:
    """Return what a work comes to, all of it done at once."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result


def one_slice(work: Callable[[], T]) -> Generator[None, None, T]:
    """Return what a small work comes to, as the one slice that it is."""
    yield
    return work()
