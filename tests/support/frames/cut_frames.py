"""Responses that come in pieces, and the tail that their walk shows."""

from collections.abc import Iterator
from itertools import repeat

from kafka_quotas.wire.proxying.fetch_response import TailFinder


def pieces(frame: bytes, sizes: Iterator[int]) -> Iterator[tuple[memoryview, int, int]]:
    """The frame as pieces of these sizes, each with something before it in its chunk."""
    start = 0
    while start < len(frame):
        end = min(start + next(sizes), len(frame))
        yield memoryview(b"before" + frame[start:end]), 6, 6 + end - start
        start = end


def tail_of(api_key: int, frame: bytes, sizes: Iterator[int] | None = None) -> bytes:
    """Everything from the tail on, of a frame as a whole or in pieces.

    A zero, which is a tail without fields, where none was shown.
    """
    finder, passed = TailFinder(api_key, len(frame) - 4), 0
    for chunk, start, end in pieces(frame, sizes or repeat(len(frame))):
        found = finder.find(chunk, start, end)
        if found is not None:
            return frame[passed + found - start :]
        passed += end - start
    return b"\0"
