"""Bring a store to what files declare again and again, and report how far it had drifted.

Contract: every round reads the files again, so that a changed file counts from the next round on. A round that fails
changes nothing and is reported, and the next one tries again. Each round first reverts temporary changes
(`alter --for`) whose time is up, and keeps the others.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from kafka_quotas import enforcement
from kafka_quotas.commands.declarative.apply import ApplyResult, DesiredState, HowToApply, apply
from kafka_quotas.commands.quotas.journal import undo_due
from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.stores import JournalWriter, Store, changed_quotas, due_undos, new_run_id

if TYPE_CHECKING:
    from prometheus_client.core import Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """The outcome of one round."""

    number: int
    result: ApplyResult | None
    error: KafkaQuotasError | None
    """Why the round changed nothing."""
    undone: int


FIGURES: Final = {
    "drift": "Quotas, and parts of groups, that the last round found other than declared.",
    "drift_undeclared": "Stored quotas that are not declared and left alone.",
    "drift_failed_entities": "Entities that the last round could not change.",
    "drift_corrected": "Quotas changed since the start.",
    "reconcile_rounds": "Rounds since the start.",
    "reconcile_failed_rounds": "Rounds in which something failed.",
    "reconcile_last_success_timestamp_seconds": "When a round last went well, in seconds since 1970; 0: never.",
}
"""The figures of all rounds so far, by the name of the metric."""


class Reconciler:
    """Does rounds on a store and keeps their figures."""

    def __init__(
        self, store: Store, desired_state: DesiredState, *, recorder: JournalWriter, dry_run: bool, allow_invalid: bool
    ) -> None:
        self.figures = dict.fromkeys(FIGURES, 0.0)
        self._store = store
        self._desired_state = desired_state
        self._recorder = recorder
        self._how = HowToApply(dry_run=dry_run, allow_invalid=allow_invalid)

    def families(self) -> "Iterator[Metric]":
        """Yield the figures as metrics."""
        for name, text in FIGURES.items():
            yield enforcement.metric_family(f"kafka_quotas_{name}", text, [({}, self.figures[name])])

    def round(self) -> Round:
        """Run the next round and return its outcome."""
        self.figures["reconcile_rounds"] += 1
        number = int(self.figures["reconcile_rounds"])
        try:
            undone, keep = self._undone()
            how = replace(self._how, recorder=self._of_this_round())
            result = apply(self._store, self._desired_state, how, keep=keep)
        except KafkaQuotasError as error:
            self.figures["reconcile_failed_rounds"] += 1
            return Round(number=number, result=None, error=error, undone=0)
        self._count(result)
        return Round(number=number, result=result, error=None, undone=undone)

    def _undone(self) -> tuple[int, Collection[tuple[Entity, str]]]:
        """Revert the temporary quotas whose time is up, and return their number and those to keep."""
        entries = self._recorder.journal.since_oldest_pending()
        undone = 0
        if not self._how.dry_run:
            undone = len(undo_due(self._store, entries, recorder=self._of_this_round()).undone)
        url = self._store.url
        due = {undo.entry_id for undo in due_undos(entries, store_url=url, now_ms=self._recorder.clock.now_ms())}
        # By entry: a quota whose time is up may still have the value of another entry, with more time.
        return undone, changed_quotas(undo for undo in due_undos(entries, store_url=url) if undo.entry_id not in due)

    def _of_this_round(self) -> JournalWriter:
        return replace(self._recorder, entry_id=new_run_id(self._recorder.clock))

    def _count(self, result: ApplyResult) -> None:
        figures = self.figures
        of_groups = len(result.declared.groups.changes)
        figures["drift"] = len(result.declared.plan.changes) + of_groups
        figures["drift_undeclared"] = sum(len(left.keys) for left in result.declared.unmanaged)
        figures["drift_failed_entities"] = len(result.failures)
        if not result.dry_run:
            figures["drift_corrected"] += len(result.made) + of_groups
        if result.failures:
            figures["reconcile_failed_rounds"] += 1
        else:
            figures["reconcile_last_success_timestamp_seconds"] = self._recorder.clock.now_ms() / 1000


def run_reconciler(
    reconciler: Reconciler,
    *,
    interval_s: float,
    metrics: "enforcement.Address | None",
    report: Callable[[Round], None],
    serving: Callable[["enforcement.Address"], None],
) -> None:
    """Run a round every `interval_s` seconds until SIGTERM, and serve the metrics at an address.

    Raises:
        KafkaQuotasError: The metrics can't be served.
    """
    server = None
    if metrics is not None:
        server = enforcement.HttpServer(metrics, routes=enforcement.metric_routes(reconciler.families))
    work = partial(asyncio.to_thread, lambda: report(reconciler.round()))
    enforcement.serve_until_stopped(server, serving, work, every_s=interval_s)
