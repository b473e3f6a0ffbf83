"""What a daemon has measured, as a text and back: the state of buckets, connection rates and topic meters.

Invariants: what no longer throttles any client is left out; times that lie in the future (the clock was set back
meanwhile) are moved back to now, so no client waits longer than before. The text is made in slices between which
clients are served; each bucket in it is as it was at one moment (`state_file` describes that).
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, cast

from kafka_quotas.core.clock import Clock
from kafka_quotas.core.quotas.quota_bucket import QuotaBucket, snapshot_of
from kafka_quotas.core.quotas.quota_manager import IDLE_MS, ClientQuotaManager, QuotaType
from kafka_quotas.enforcement.config.client_policy import Mode
from kafka_quotas.enforcement.config.rules import EnforcementRules
from kafka_quotas.enforcement.filters.thresholds import ThresholdRegistry
from kafka_quotas.enforcement.proxy.connection_quotas import ConnectionQuotas
from kafka_quotas.enforcement.proxy.proxy_server import ProxyServer
from kafka_quotas.enforcement.quotas.quota_registry import CLUSTER, NodeId, QuotaRegistry
from kafka_quotas.enforcement.state.state_file import (
    Saved,
    SavedBucket,
    SavedMeter,
    SavedRate,
    SavedState,
    StateError,
    state_text,
)
from kafka_quotas.enforcement.telemetry.log import LogEvent, Notify

_SLICE: Final = 64
"""Figures written down between two pauses: a millisecond's work."""

OnSaved = Callable[[list[QuotaBucket]], None]
"""Receives the buckets of a slice at the moment whose state is in the text."""


class MeasuredState:
    """The state of all that a daemon measures.

    Args:
        settings: The windows under which it measures.
        bootstrap: Returns the node id of the bootstrap listener's broker.
    """

    def __init__(
        self,
        policy: QuotaRegistry,
        *,
        connections: ConnectionQuotas,
        thresholds: ThresholdRegistry,
        clock: Clock,
        settings: tuple[str, ...],
        bootstrap: Callable[[], NodeId],
        notify: Notify,
    ) -> None:
        self._policy = policy
        self._connections = connections
        self._thresholds = thresholds
        self._clock = clock
        self._settings = settings
        self._bootstrap = bootstrap
        self._notify = notify

    def text(self, on_saved: OnSaved | None = None) -> Iterator[str]:
        """Yield the text of the state, one piece per slice, between which clients may be served."""
        return state_text(self._settings, self._saved(on_saved), now_ms=self._clock.now_ms)

    def restore(self, state: SavedState, source: str, *, is_of_now: bool = False) -> None:
        """Restore a state, and log what was restored.

        Args:
            state: The state.
            source: The file or process it comes from, for people.
            is_of_now: Whether it was saved at this moment by a clock that may be ahead or behind.

        Raises:
            StateError: The state was measured under other windows.
        """
        if state.settings != self._settings:
            raise StateError(f"the state in {source} was kept under other settings: {', '.join(state.settings)}")
        now_ms = self._clock.now_ms()
        shift_ms = now_ms - state.saved_ms if is_of_now else min(0, now_ms - state.saved_ms)
        restored = [
            sum(self._is_restored(saved, shift_ms, now_ms) for saved in kind)
            for kind in (state.buckets, state.connections, state.topics)
        ]
        fields: dict[str, str | float] = {
            "from": source,
            **dict(zip(("buckets", "connections", "topics"), restored, strict=True)),
            "skipped": len(state.buckets) + len(state.connections) + len(state.topics) - sum(restored),
            "age_ms": now_ms - state.saved_ms,
        }
        self._notify(LogEvent(event="state restored", fields=fields))

    def _is_restored(self, saved: Saved, shift_ms: int, now_ms: int) -> bool:
        """Restore one bucket, rate or meter, and return whether it takes the figures.

        It takes neither those of another algorithm nor those that are no figures at all.
        """
        try:
            match saved:
                case SavedBucket(broker=broker):
                    quotas = self._policy.cluster if broker == CLUSTER else self._policy.broker(self._node_id(broker))
                    quotas.manager(saved.quota_type, saved.mode).restore(saved.snapshot, shift_ms)
                case SavedRate(broker=node_id):
                    self._connections.broker(self._node_id(node_id)).rates.restore(saved.snapshot, shift_ms)
                case SavedMeter(broker=node_id):
                    thresholds = self._thresholds.broker(self._node_id(node_id))
                    thresholds.restore(saved.topic, saved.figures, shift_ms=shift_ms, now_ms=now_ms)
        except (ValueError, IndexError, OverflowError):
            return False
        return True

    def _node_id(self, broker: NodeId | str) -> NodeId:
        if isinstance(broker, str):
            raise StateError(f"no broker is called {broker!r}")
        return self._bootstrap() if broker is None else broker

    def _saved(self, on_saved: OnSaved | None) -> Iterator[list[Saved]]:
        """Yield slices of all state that may still throttle a client."""
        sources = {manager: (CLUSTER, mode) for mode, manager in self._policy.cluster.managers()} | {
            manager: (self._name(node_id), mode)
            for node_id, quotas in self._policy.brokers.items()
            for mode, manager in quotas.managers()
        }
        now_ms = self._clock.now_ms()
        for buckets in self._policy.pool.walk():
            if on_saved is not None:
                on_saved([bucket for bucket, _ in buckets])
            yield from _sliced(
                SavedBucket(broker=broker, mode=mode, quota_type=manager.quota_type, snapshot=snapshot)
                for bucket, owner in buckets
                if (manager := cast("ClientQuotaManager", owner)) in sources
                for broker, mode in (sources[manager],)
                if bucket.recorded_ms is not None
                and now_ms - bucket.recorded_ms <= _span_ms(manager, mode)
                and (snapshot := snapshot_of(bucket)) is not None
            )
            yield []
        yield from _sliced(self._rates(now_ms))
        yield from _sliced(
            SavedMeter(broker=self._name(node_id), topic=topic, figures=figures)
            for node_id, thresholds in list(self._thresholds.brokers.items())
            for topic, figures in thresholds.snapshots(now_ms)
        )

    def _rates(self, now_ms: int) -> Iterator[SavedRate]:
        window = self._policy.window
        for node_id, made in list(self._connections.brokers.items()):
            for snapshot in made.rates.snapshots():
                if now_ms - snapshot.recorded_ms <= 2 * window.samples * window.window_ms:
                    yield SavedRate(broker=self._name(node_id), snapshot=snapshot)

    def _name(self, node_id: NodeId) -> NodeId:
        # The bootstrap listener's broker may have another id after a restart.
        return None if node_id == self._bootstrap() else node_id


def measured_state(
    proxy: ProxyServer,
    policy: QuotaRegistry,
    connections: ConnectionQuotas,
    rules: EnforcementRules,
    clock: Clock,
    *,
    notify: Notify,
) -> MeasuredState:
    """Return the state of all that the process of a proxy server measures."""
    return MeasuredState(
        policy,
        connections=connections,
        thresholds=proxy.topics.thresholds,
        clock=clock,
        settings=tuple(f"{each.samples} x {each.window_s} s" for each in (rules.window, rules.mutation_window)),
        bootstrap=lambda: proxy.listeners[0].brokers.routes[0].node_id,
        notify=notify,
    )


def _sliced(saved: Iterator[Saved]) -> Iterator[list[Saved]]:
    while slice_ := list(islice(saved, _SLICE)):
        yield slice_


def _span_ms(manager: ClientQuotaManager, mode: Mode) -> int:
    """Return how long after its last record a bucket still counts."""
    # Rates forget with their window, debts may last.
    lasts = manager.quota_type is QuotaType.CONTROLLER_MUTATION or mode is Mode.SMOOTH
    return IDLE_MS if lasts else 2 * manager.window.samples * manager.window.window_ms
