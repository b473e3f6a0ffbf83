"""The periodic save of what was measured, a last one at the end, and its restoration at the start.

A save is made in slices between which clients are served; `state` has the rules of what is saved.
"""

import asyncio
import contextlib
import sys
import time
from pathlib import Path
from typing import Final, TextIO

from kafka_quotas.enforcement.sharing.state import MeasuredState, SavedState, StateError, read_state, state_file
from kafka_quotas.enforcement.telemetry.counters import Counters
from kafka_quotas.enforcement.telemetry.log import LogEvent, Notify
from kafka_quotas.stores.files.atomic_write import clear_leftovers

SAVE_S: Final = 5.0
"""Pause between two saves: with the time of two saves the most that a killed daemon forgets."""
FIRST_SAVE_S: Final = 0.25
"""Pause before the first save, doubled at each further one up to `SAVE_S`.

A daemon that dies soon after every start would otherwise forget all of every life, and its clients would be unlimited.
"""
_WRITE_CHARS: Final = 256 * 1024
"""Characters gathered before a thread writes them."""


class _AbandonedError(Exception):
    """Error that ends a save under way when the daemon ends."""


_NOT_RESTORED: Final = "state can't be restored; every bucket starts empty"


def saved_state(path: Path | None, notify: Notify) -> SavedState | None:
    """Return the state in a file, None where there is none or it can't be read, which is logged."""
    try:
        return None if path is None else read_state(path)
    except StateError as error:
        notify(LogEvent.failure(_NOT_RESTORED, error))
        return None


class StateSnapshotter:
    """The keeper of the state of buckets, connection rates and topic meters in a file."""

    def __init__(self, path: Path, measured: MeasuredState, counters: Counters, *, notify: Notify) -> None:
        self._path = path
        self._measured = measured
        self._counters = counters
        self._saved_s = time.monotonic()
        self._notify = notify
        self._failing = False
        self._ending = asyncio.Event()

    def age_ms(self) -> int:
        """Return the time since the last save, or since the start."""
        return int(1000 * (time.monotonic() - self._saved_s))

    def restore(self, saved: SavedState | None) -> None:
        """Restore what `saved_state` returned, and remove the rest of a save that was killed."""
        with contextlib.suppress(OSError):  # the folder may be gone, which the first save reports
            clear_leftovers(self._path)
        try:
            if saved is not None:
                self._measured.restore(saved, str(self._path))
        except StateError as error:
            self._notify(LogEvent.failure(_NOT_RESTORED, error))

    async def keep(self) -> None:
        """Save the state again and again, and a last time after `end`."""
        pause_s = FIRST_SAVE_S
        while not self._ending.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), pause_s)
                break
            pause_s = min(2 * pause_s, SAVE_S)
            try:
                await self._save_in_slices()
            except StateError as error:
                self._log_failure(error)
            else:
                self._saved()
        self.save()

    def end(self) -> None:
        """Have `keep` give up a save under way, save the state of this moment and return."""
        self._ending.set()

    async def _save_in_slices(self) -> None:
        """Save the state while clients are served: gathered in the event loop, written in a thread."""
        replacement = state_file(self._path)
        file = await asyncio.to_thread(replacement.__enter__)
        try:
            await self._write_slices(file)
        except BaseException:
            with contextlib.suppress(_AbandonedError):
                replacement.__exit__(*sys.exc_info())
                raise
        else:
            await asyncio.to_thread(replacement.__exit__, None, None, None)

    async def _write_slices(self, file: TextIO) -> None:
        pieces: list[str] = []
        size = 0
        for piece in self._measured.text():
            pieces.append(piece)
            size += len(piece)
            if size < _WRITE_CHARS:
                await asyncio.sleep(0)
            else:
                await asyncio.to_thread(file.write, "".join(pieces))
                pieces, size = [], 0
            if self._ending.is_set():
                raise _AbandonedError
        await asyncio.to_thread(file.write, "".join(pieces))

    def save(self) -> None:
        """Save the state of this moment in one go, while no client is served."""
        try:
            with state_file(self._path) as file:
                file.writelines(self._measured.text())
        except StateError as error:
            self._log_failure(error)
        else:
            self._saved()

    def _saved(self) -> None:
        self._failing = False
        self._counters.state_saves += 1
        self._saved_s = time.monotonic()

    def _log_failure(self, error: StateError) -> None:
        self._counters.state_save_failures += 1
        if not self._failing:
            self._failing = True
            self._notify(LogEvent.failure("state can't be saved", error))
