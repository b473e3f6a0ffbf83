"""Work over everything that the daemon keeps, done a little at a time.

Such work is a generator that knows nothing of event loops: between two of its slices anything may happen. Code that
runs while clients are served drives it with `run_sliced`, code at the start or the end with `run_whole`.
"""

import asyncio
from collections.abc import Callable, Generator
from typing import TypeVar

T = TypeVar("T")


async def run_sliced(work: Generator[None, None, T]) -> T:
    """Run the work slice by slice and return its result.

    The event loop serves others between two slices.
    """
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result
        await asyncio.sleep(0)


def run_whole(work: Generator[None, None, T]) -> T:
    """Run the work in one go and return its result."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result


def one_slice(work: Callable[[], T]) -> Generator[None, None, T]:
    """Run small work as a single slice and return its result."""
    yield
    return work()
