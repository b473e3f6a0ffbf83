"""What a run in several processes needs: which tests go to one process, and which run while no other test does.

What measures a rate or a time runs alone: on two processors another test beside it would be part of what it measures.
"""

import fcntl
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling


class FilesTogether(LoadScopeScheduling):
    """A scheduler that hands out files in the order of collection, to whichever process has least left to do.

    All files whose text names one of `one_process_for`, as an argument or to ask for it later, go to one process. What
    waits for servers is collected first, so that the short tests at the end keep both processes busy.
    """

    def __init__(self, config: pytest.Config, log: Any, *, one_process_for: Collection[str]) -> None:
        config.option.loadscopereorder = False  # by number of tests, which says little about how long they take
        super().__init__(config, log)
        self._names = tuple(one_process_for)
        self._scope_of = cache(self._scope)

    def _split_scope(self, nodeid: str) -> str:
        return self._scope_of(nodeid.split("::", 1)[0])

    def _scope(self, file: str) -> str:
        text = (self.config.rootpath / file).read_text(encoding="utf-8")
        return "the run's servers" if any(name in text for name in self._names) else file


MEASURING = (
    "chaos/test_kills.py",
    "chaos/test_network_faults.py",
    "integration/cli/test_demo.py",
    "integration/daemon/quotas/test_broker_against_daemon.py",
    "integration/daemon/quotas/test_clients.py",
    "integration/daemon/quotas/test_fetch_mode.py",
    "integration/daemon/quotas/test_policies.py",
    "integration/daemon/quotas/test_share_consumer.py",
    "integration/daemon/quotas/test_topics.py",
    "integration/load/test_clients.py",
    "integration/load/test_embedded_cluster.py",
    "integration/load/test_floods.py",
    "integration/load/test_metrics.py",
    "integration/load/test_run.py",
    "integration/load/test_scenarios.py",
    "integration/stores/test_throttles.py",
)
"""Files below `tests` whose tests judge rates or times."""


@contextmanager
def turn(folder: Path, file: Path) -> Iterator[None]:
    """Let one test run: a measuring one alone, any other beside others of its kind.

    Whoever waits to be alone keeps the door, so that no other test begins meanwhile.
    """
    with (folder / "door").open("w") as door, (folder / "room").open("w") as room:
        fcntl.flock(door, fcntl.LOCK_EX)
        alone = file.as_posix().endswith(MEASURING)
        fcntl.flock(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(door, fcntl.LOCK_UN)
        yield
