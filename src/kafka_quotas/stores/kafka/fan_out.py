"""One request to every broker of a cluster in parallel, where all silent brokers cost a single wait."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from kafka_quotas.core.errors import StoreError, StoreRefusedError

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class FanOut(Generic[Answer]):
    """The answers of brokers, and the failures of the others."""

    answers: Mapping[int, Answer]
    """Answers by node id, in the order of ids."""
    failures: Mapping[int, StoreError]
    """Errors by node id, in the order of ids."""

    @property
    def missing(self) -> str | None:
        """The reasons of all brokers without an answer, on one line, None where all answered."""
        return "; ".join(error.message for error in self.failures.values()) or None

    def raise_refusal(self) -> None:
        """Raise the first `StoreRefusedError` where no broker answered, as it does not concern one alone."""
        refusals = [error for error in self.failures.values() if isinstance(error, StoreRefusedError)]
        if refusals and not self.answers:
            raise refusals[0]


def ask_each(node_ids: Sequence[int], question: Callable[[int], Answer]) -> FanOut[Answer]:
    """Ask every broker at the same time, each in a thread of its own, and wait for the last.

    A `StoreError` of the question counts as that broker's failure, and any other exception ends the whole call.
    """
    answers: dict[int, Answer] = {}
    failures: dict[int, StoreError] = {}
    faults: list[Exception] = []

    def ask(node_id: int) -> None:
        try:
            answers[node_id] = question(node_id)
        except StoreError as error:
            failures[node_id] = error
        except Exception as error:  # noqa: BLE001 - it is raised again in the thread that asked
            faults.append(error)

    # The first broker is asked in this thread, so a cluster of one takes no other.
    threads = [threading.Thread(target=ask, args=(node_id,), daemon=True) for node_id in node_ids[1:]]
    for thread in threads:
        thread.start()
    for node_id in node_ids[:1]:
        ask(node_id)
    for thread in threads:
        thread.join()
    if faults:
        raise faults[0]
    return FanOut(answers=dict(sorted(answers.items())), failures=dict(sorted(failures.items())))
