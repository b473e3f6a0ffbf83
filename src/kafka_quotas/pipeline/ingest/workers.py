"""Processes that run a function over many arguments, or this process where that is quicker."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Protocol, TypeVar

from kafka_quotas.core.errors import KafkaQuotasError

_Argument = TypeVar("_Argument")
_Result = TypeVar("_Result")


class Run(Protocol):
    """Yields the results of a function, in no order."""

    def __call__(
        self, function: Callable[[_Argument], _Result], arguments: Iterable[_Argument], /
    ) -> Iterator[_Result]:
        """The results as they come; raises what the function raises."""
        ...


@contextmanager
def workers(wanted: int) -> Iterator[Run]:
    """What runs functions for the block, on up to `wanted` processes and no more than there are cores."""
    processes = min(wanted, os.cpu_count() or 1)
    if processes <= 1:
        yield _run_here
        return
    context = get_context("forkserver")
    context.set_forkserver_preload(["kafka_quotas.pipeline.ingest.local_engine"])  # loaded once, not by each
    with ProcessPoolExecutor(processes, mp_context=context) as pool:

        def run(function: Callable[[_Argument], _Result], arguments: Iterable[_Argument], /) -> Iterator[_Result]:
            futures = [pool.submit(function, argument) for argument in arguments]
            try:
                for future in as_completed(futures):
                    yield future.result()
            except BrokenProcessPool as error:
                raise KafkaQuotasError("a worker process was killed", hint="is there enough memory?") from error
            finally:
                for future in futures:
                    future.cancel()

        yield run


def _run_here(function: Callable[[_Argument], _Result], arguments: Iterable[_Argument], /) -> Iterator[_Result]:
    return map(function, arguments)
