"""The order of a run in several processes: which tests share one, which begin first, and which run while no other does.

Most tests wait more than they work, so there are more processes than processors. What measures a rate or a time is
marked `measuring` and runs alone: another test beside it would be part of what it measures. A process runs all that it
has of these at one stretch, so that the others have to stop for it once.
"""

import fcntl
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO, Any

import pytest
from xdist.scheduler import LoadScopeScheduling

MEASURING = "measuring"
LONGEST = (
    "integration/pipeline/test_stream_kafka.py",
    "integration/pipeline/test_engines.py",
    "integration/daemon/operation/test_rolling_restart.py",
    "integration/packaging/test_container_image.py",
    "integration/cli/test_compiled_wheel.py",
    "chaos/test_kills.py",
    "chaos/test_network_faults.py",
    "integration/daemon/operation/test_kills.py",
    "integration/pipeline/test_real_traffic.py",
    "integration/daemon/connections/test_upstreams.py",
    "conformance/pipeline/test_kernels_lines.py",
)
"""Files below `tests` that take half a minute and more beside those with servers, longest first."""


class FilesTogether(LoadScopeScheduling):
    """A scheduler that hands out files in the order of collection, to whichever process has least left to do.

    Each of `groups` is a set of words, and all files whose text has one of its words go to one process. A file belongs
    to the first group of which it has a word.
    """

    def __init__(self, config: pytest.Config, log: Any, *, groups: Sequence[Collection[str]]) -> None:
        config.option.loadscopereorder = False  # by number of tests, which says little about how long they take
        super().__init__(config, log)
        self._scope_of = cache(lambda file: group_of(config.rootpath / file, groups) or file)

    def _split_scope(self, nodeid: str) -> str:
        return self._scope_of(nodeid.split("::", 1)[0])


def group_of(file: Path, groups: Sequence[Collection[str]]) -> str:
    """The name of the group of a file, empty for one that has none."""
    text = file.read_text(encoding="utf-8")
    return next((f"group {n}" for n, words in enumerate(groups) if any(word in text for word in words)), "")


def in_order(items: Sequence[pytest.Item], groups: Sequence[Collection[str]]) -> list[pytest.Item]:
    """The tests as they are to begin: groups, then the longest files, then the rest.

    In a group what measures last.
    """
    grouped = cache(lambda file: group_of(file, groups))

    def rank(item: pytest.Item) -> tuple[str, bool, int]:
        group, place = grouped(item.path), item.path.as_posix()
        long = next((n for n, file in enumerate(LONGEST) if place.endswith(file)), len(LONGEST))
        return group or "rest", bool(group) and is_measuring(item), long

    return sorted(items, key=rank)


def is_measuring(item: pytest.Item) -> bool:
    return item.get_closest_marker(MEASURING) is not None


class Turns:
    """The turns of one process of a run, by two files that all of them lock."""

    def __init__(self) -> None:
        self._room: IO[str] | None = None

    @contextmanager
    def turn(self, folder: Path, item: pytest.Item, next_item: pytest.Item | None) -> Iterator[None]:
        """Let one test run: a measuring one alone, any other beside others of its kind.

        The room stays locked between two measuring tests. A process that waits to be alone keeps the door, so that no
        other test begins meanwhile.
        """
        if self._room is None:
            with (folder / "door").open("w") as door:
                fcntl.flock(door, fcntl.LOCK_EX)
                self._room = (folder / "room").open("w")
                fcntl.flock(self._room, fcntl.LOCK_EX if is_measuring(item) else fcntl.LOCK_SH)
        try:
            yield
        finally:
            if not (is_measuring(item) and next_item is not None and is_measuring(next_item)):
                self._room.close()
                self._room = None


TURNS = Turns()
"""Those of this process."""
