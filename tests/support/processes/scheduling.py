"""The order of a run in several processes: which tests share one, which begin first, and which run beside no others.

Most tests wait more than they work, so there are more processes than processors. What measures a rate or a time is
marked `measuring`: it waits for its clock, hardly works, and would take the work of other tests into what it measures.
So these tests run beside each other only, all of them first, at one stretch in each process.

They leave half of the processors unused. What only computes in its own process has them meanwhile: one process takes
such tests first, and steps back for all others as long as somebody measures.
"""

import fcntl
import os
import resource
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import IO, Any

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

MEASURING = "measuring"
LONGEST = (
    "integration/pipeline/test_comparison.py",
    "integration/pipeline/test_kills.py",
    "integration/pipeline/test_stream_kafka.py",
    "integration/pipeline/test_engines.py",
    "integration/daemon/operation/test_rolling_restart.py",
    "integration/packaging/test_container_image.py",
    "integration/cli/test_compiled_wheel.py",
    "chaos/test_network_faults.py",
    "chaos/test_kills.py",
    "integration/daemon/operation/test_kills.py",
    "integration/pipeline/test_real_traffic.py",
    "integration/pipeline/test_object_store.py",
    "integration/daemon/connections/test_upstreams.py",
    "property/pipeline/test_request_scan.py",
    "conformance/pipeline/test_kernels_bounds.py",
    "conformance/pipeline/test_kernels_lines.py",
)
"""Files below `tests` that take half a minute and more beside those with servers, longest first."""
COMPUTING = ("unit/", "property/", "conformance/")
"""Folders and files below `tests` that compute in their own process, and wait for neither a server nor a clock."""

_NICENESS_0 = 20
"""What `RLIMIT_NICE` calls niceness 0 (getrlimit(2))."""


class FilesTogether(LoadScopeScheduling):
    """A scheduler that hands out files in the order of collection, to any process that has little left to do.

    Each of `groups` is a set of words, and all files whose name or text has one of them go to one process. A file
    belongs to the first group of which it has a word.
    """

    def __init__(self, config: pytest.Config, log: Any, *, groups: Sequence[Collection[str]]) -> None:
        config.option.loadscopereorder = False  # by number of tests, which says little about how long they take
        super().__init__(config, log)
        self._groups = len(groups)
        self._scope_of = cache(lambda file: group_of(config.rootpath / file, groups) or file)

    def _split_scope(self, nodeid: str) -> str:
        return self._scope_of(nodeid.split("::", 1)[0])

    def _assign_work_unit(self, node: WorkerController) -> None:
        assigned = self.assigned_work.get(node, {})
        computing = next(filter(_is_computing, self.workqueue), None)
        if computing and len(self.nodes) > self._groups and node is self.nodes[-1]:
            self.workqueue.move_to_end(computing, last=False)
        elif any(_is_long(file) and False in is_done.values() for file, is_done in assigned.items()):
            # It waits behind a long file, where another process could have begun with it: so let it be a short one.
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)


def _is_long(file: str) -> bool:
    return file.endswith(LONGEST)


def _is_computing(file: str) -> bool:
    return file.rpartition("tests/")[2].startswith(COMPUTING)


def group_of(file: Path, groups: Sequence[Collection[str]]) -> str:
    """The name of the group of a file, empty for one that has none."""
    text = f"{file.as_posix()}\n{file.read_text(encoding='utf-8')}"
    return next((f"group {n}" for n, words in enumerate(groups) if any(word in text for word in words)), "")


def in_order(items: Sequence[pytest.Item], groups: Sequence[Collection[str]]) -> list[pytest.Item]:
    """The tests as they are to begin: groups, then the longest files, then the rest.

    In a group what measures first: a run begins, so that no process has to wait for others that are in the middle.
    The order does not depend on the one in which files were collected.
    """
    grouped = cache(lambda file: group_of(file, groups))

    def rank(item: pytest.Item) -> tuple[str, bool, int, str]:
        group, place = grouped(item.path), item.path.as_posix()
        long = next((n for n, file in enumerate(LONGEST) if place.endswith(file)), len(LONGEST))
        return group or "rest", bool(group) and not is_measuring(item), long, place

    return sorted(items, key=rank)


def files_from_another(folder: Path, process: int, processes: int) -> list[str]:
    """The test files below a folder, in an order that begins for each process at another of them.

    Each process collects all files, and the first to come to one compiles it for all: in the same order each would.
    """
    files = sorted(str(file) for file in folder.rglob("test_*.py"))
    first = len(files) * process // processes
    return files[first:] + files[:first]


def is_measuring(item: pytest.Item) -> bool:
    return item.get_closest_marker(MEASURING) is not None


class Turns:
    """The turns of one process of a run, by files that all of them lock.

    Measuring tests share their room, and so do all others, but nobody is in one room while somebody is in the other.
    Tests that only compute need no room where a process may give up its turn for the processors and get it back.
    """

    def __init__(self) -> None:
        self._room: IO[str] | None = None

    @contextmanager
    def turn(self, folder: Path, item: pytest.Item, next_item: pytest.Item | None) -> Iterator[None]:
        """Let one test run beside others of its kind.

        The room stays locked between two measuring tests. A process that waits for the others' tests to end, so that it
        can measure, keeps the door meanwhile, and no other test begins.
        """
        if self._room is None and _is_computing(item.path.as_posix()) and not is_measuring(item) and _may_step_back():
            with _behind_others() if not _is_empty(folder / MEASURING, wait=False) else nullcontext():
                yield
            return
        if self._room is None:
            self._room = _entered(folder, is_measuring(item))
        try:
            yield
        finally:
            if not (is_measuring(item) and next_item is not None and is_measuring(next_item)):
                self._room.close()
                self._room = None


@contextmanager
def _behind_others() -> Iterator[None]:
    """Have a processor only while nobody else wants it."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def _may_step_back() -> bool:
    """Whether this process may come back from behind others, for which Linux asks root's privilege or a limit."""
    if not hasattr(os, "SCHED_IDLE"):
        return False
    allowed = resource.getrlimit(resource.RLIMIT_NICE)[0]
    return os.geteuid() == 0 or allowed == resource.RLIM_INFINITY or allowed >= _NICENESS_0


def _entered(folder: Path, to_measure: bool) -> IO[str]:
    """The room of a kind of tests, locked together with others in it."""
    measuring, others = folder / MEASURING, folder / "others"
    room = (measuring if to_measure else others).open("w")
    while True:
        with (folder / "door").open("w") as door:
            fcntl.flock(door, fcntl.LOCK_EX)
            if _is_empty(others if to_measure else measuring, wait=to_measure):
                fcntl.flock(room, fcntl.LOCK_SH)
                return room
        _is_empty(measuring, wait=True)  # outside the door, through which others may come that measure as well


def _is_empty(room: Path, *, wait: bool) -> bool:
    """Whether nobody is in a room, after everybody has left it where that is waited for."""
    with room.open("w") as empty:
        try:
            fcntl.flock(empty, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


TURNS = Turns()
"""Those of this process."""
