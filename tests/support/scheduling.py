"""Which tests run in one process where a run has several: those of a file, and those that share the run's servers."""

from collections.abc import Collection
from functools import cache
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
