"""Work in slices, done in one go."""

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


def run_whole(work: Generator[None, None, T]) -> T:
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result
