"""Rows of `bounds.py` about many limits: what applying them costs, at the start and when one changes."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import proxy_load
from bounds_figure import Figure, cpu_s

from kafka_quotas.commands.testbed.daemon_process import running_daemon
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.enforcement.quotas.quota_registry import QuotaRegistry
from kafka_quotas.stores import open_store
from kafka_quotas.stores.store import Alteration, QuotaEntry

BROKERS = 100
QUOTAS = {"producer_byte_rate": 1e6, "consumer_byte_rate": 2e6}
_SETTLED_S = 3.0


def limits_at_start_and_changed(*, quick: bool) -> Iterator[Figure]:
    """Measure what limits of many users cost: 16,000, and 200,000."""
    for users, bound_s in ((8_000, 2),) if quick else ((8_000, 2), (100_000, 20)):
        yield from _in_a_policy(users, bound_s)
        yield from _in_a_daemon(users, bound_s)


def _entry(number: int) -> QuotaEntry:
    return QuotaEntry(entity=Entity.of(user=f"user-{number}"), quotas=QUOTAS)


def _in_a_policy(users: int, bound_s: float) -> Iterator[Figure]:
    """Measure the part of it that is enforcing, without reading a store."""
    entries, limits = [_entry(number) for number in range(users)], users * len(QUOTAS)
    policy = QuotaRegistry(QuotaWindow())
    began = time.process_time()
    policy.apply(entries)
    applied = time.process_time()
    for node_id in range(BROKERS):
        policy.broker(node_id).client("user-1", "app")
    met = time.process_time()
    policy.alter({Entity.of(user="user-1"): {}})
    changed = time.process_time()
    yield Figure(what=f"{limits} limits: applying them", measured=applied - began, unit="s", bound=bound_s)
    yield Figure(what=f"{limits} limits: meeting {BROKERS} brokers", measured=met - applied, unit="s", bound=0.1)
    yield Figure(what=f"{limits} limits: changing one", measured=(changed - met) * 1000, unit="ms", bound=1)


def _in_a_daemon(users: int, bound_s: float) -> Iterator[Figure]:
    """All of it, reading the store included."""
    limits = users * len(QUOTAS)
    bare_s, _ = _started(0)
    full_s, change_s = _started(users)
    yield Figure(
        what=f"daemon with {limits} limits: more at the start", measured=full_s - bare_s, unit="s", bound=bound_s
    )
    yield Figure(
        what=f"daemon with {limits} limits: one is changed",
        measured=change_s,
        unit="s",
        bound=None,
        note="all threads: the store is read as a whole",
    )


def _started(users: int) -> tuple[float, float]:
    """CPU seconds until the daemon listens, and of a change of one limit."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        upstream = stack.enter_context(proxy_load.broker())
        store = open_store(f"local:{folder / 'quotas.db'}")
        stack.callback(store.close)
        store.alter([Alteration(entity=_entry(number).entity, changes=QUOTAS) for number in range(users)])
        running = stack.enter_context(
            running_daemon(upstream=f"127.0.0.1:{upstream}", store_url=store.url, window=QuotaWindow(), folder=folder)
        )
        started_s = cpu_s(running.pid)
        time.sleep(_SETTLED_S)
        before_s, began = cpu_s(running.pid), time.monotonic()
        store.alter([Alteration(entity=Entity.of(user="user-1"), changes={"producer_byte_rate": 5e5})])
        while (folder / "daemon.log").read_text().count("quotas applied") < 2:
            if time.monotonic() - began > 60:
                raise SystemExit("the change was not applied")
            time.sleep(0.05)
        return started_s, cpu_s(running.pid) - before_s
