"""`kafka-quotas apply --watch`: what is said while a store is brought to its files again and again."""

import sys

from kafka_quotas.cli.render import write
from kafka_quotas.commands.apply_watch import Reconciler, Round, run_reconciler
from kafka_quotas.commands.declared_plan import Desire
from kafka_quotas.commands.history import Recorder
from kafka_quotas.core.errors import UsageError
from kafka_quotas.enforcement.address import Address, parse_address
from kafka_quotas.stores.store import Store

SHORTEST_S = 1.0


def reconcile(
    store: Store,
    desire: Desire,
    *,
    interval_s: float,
    metrics: str | None,
    dry_run: bool,
    allow_invalid: bool,
    recorder: Recorder,
) -> None:
    """Nothing, once it was told to stop; every round that changed anything or failed is a line on standard error.

    Raises `UsageError` for an interval below a second or an address that can't be understood.
    """
    if not interval_s >= SHORTEST_S:
        raise UsageError(f"--watch {interval_s:g} is too often", hint="at least 1 second, for example --watch 30")
    address = None if metrics is None else parse_address(metrics, may_be_zero=True)
    run_reconciler(
        Reconciler(store, desire, recorder=recorder, dry_run=dry_run, allow_invalid=allow_invalid),
        interval_s=interval_s,
        metrics=address,
        report=_tell,
        serving=_tell_address,
    )


def _tell(done: Round) -> None:
    """Nothing; a round that is worth a line is told."""
    for line in _lines(done):
        write(f"round {done.number}: {line}", sys.stderr)
    sys.stderr.flush()


def _tell_address(address: Address) -> None:
    write(f"note: metrics at http://{address}/metrics", sys.stderr)


def _lines(done: Round) -> list[str]:
    if done.error is not None:
        return [f"nothing was changed: {done.error.message}"]
    lines = [f"{done.undone} temporary quotas taken back"] if done.undone else []
    result = done.result
    if result is None:
        return lines
    if result.made:
        lines.append(f"{'would change' if result.dry_run else 'changed'} {len(result.made)} quotas")
    elif done.number == 1 and not result.failures:
        lines.append("in order")
    return lines + [f"failed: {failure.entity}: {failure.error.message}" for failure in result.failures]
