"""Saving what was measured now and then and at the end, and giving it back to who measures at the start.

Invariants: what can't hold anybody back any more is not saved; times that lie in the future (the clock
was set back meanwhile) are moved back to now, so that nobody waits longer than before.
"""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

from kafka_quotas.core.clock import Clock
from kafka_quotas.core.quota_manager import IDLE_MS, QuotaType
from kafka_quotas.enforcement.broker_quotas import ENFORCED, BrokerQuotas
from kafka_quotas.enforcement.connections import ConnectionBook
from kafka_quotas.enforcement.notice import Notice, Notify, Severity
from kafka_quotas.enforcement.policy import NodeId, Policy
from kafka_quotas.enforcement.state_file import (
    CLUSTER,
    SavedBucket,
    SavedMeter,
    SavedRate,
    SavedState,
    StateError,
    read_state,
    write_state,
)
from kafka_quotas.enforcement.terms import Mode
from kafka_quotas.enforcement.threshold_board import ThresholdBoard

SAVE_S: Final = 5.0
"""How often the state is saved: what a killed daemon forgets at most."""

_Remember: TypeAlias = Callable[[], None]


class StateKeeper:
    """Keeps the memory of buckets, connection rates and topics' meters in a file.

    `bootstrap` tells the node id behind the bootstrap listener.
    """

    def __init__(
        self,
        path: Path,
        policy: Policy,
        *,
        connections: ConnectionBook,
        thresholds: ThresholdBoard,
        clock: Clock,
        settings: tuple[str, ...],
        bootstrap: Callable[[], NodeId],
        notify: Notify,
    ) -> None:
        self._path = path
        self._policy = policy
        self._connections = connections
        self._thresholds = thresholds
        self._clock = clock
        self._settings = settings
        self._bootstrap = bootstrap
        self._notify = notify
        self._failing = False

    def restore(self) -> None:
        """Nothing; the buckets go on where they ended. What can't be taken is said, and is no reason not to start."""
        try:
            state = read_state(self._path)
            if state is not None:
                self._restore(state)
        except StateError as error:
            self._notify(
                Notice(
                    event="state can't be restored; every bucket starts empty",
                    severity=Severity.ERROR,
                    fields={"error": error.message},
                )
            )

    async def keep(self) -> None:
        """Never; the state is saved again and again."""
        while True:
            await asyncio.sleep(SAVE_S)
            state = self._state()
            try:
                await asyncio.to_thread(write_state, self._path, state)
            except StateError as error:
                self._say_failing(error)
            else:
                self._failing = False

    def save(self) -> None:
        """Nothing; the state of this moment is saved."""
        try:
            write_state(self._path, self._state())
        except StateError as error:
            self._say_failing(error)

    def _restore(self, state: SavedState) -> None:
        if state.settings != self._settings:
            raise StateError(f"the state in {self._path} was kept under other settings: {', '.join(state.settings)}")
        now_ms = self._clock.now_ms()
        shift_ms = min(0, now_ms - state.saved_ms)
        taken = [_took(self._bucket(bucket, shift_ms)) for bucket in state.buckets]
        rates = [_took(self._rate(rate, shift_ms)) for rate in state.connections]
        meters = [_took(self._meter(meter, shift_ms, now_ms)) for meter in state.topics]
        every = (*taken, *rates, *meters)
        fields: dict[str, str | float] = {
            "file": str(self._path),
            "buckets": sum(taken),
            "connections": sum(rates),
            "topics": sum(meters),
            "skipped": len(every) - sum(every),
            "age_ms": now_ms - state.saved_ms,
        }
        self._notify(Notice(event="state restored", fields=fields))

    def _bucket(self, bucket: SavedBucket, shift_ms: int) -> _Remember:
        of_all = bucket.broker == CLUSTER
        quotas = self._policy.cluster if of_all else self._policy.broker(self._node_id(bucket.broker))
        manager = quotas.manager(bucket.quota_type, bucket.mode)
        return lambda: manager.remember(bucket.memory, shift_ms)

    def _rate(self, rate: SavedRate, shift_ms: int) -> _Remember:
        rates = self._connections.broker(self._node_id(rate.broker)).rates
        return lambda: rates.remember(rate.memory, shift_ms)

    def _meter(self, meter: SavedMeter, shift_ms: int, now_ms: int) -> _Remember:
        thresholds = self._thresholds.broker(self._node_id(meter.broker))
        return lambda: thresholds.remember(meter.topic, meter.figures, shift_ms=shift_ms, now_ms=now_ms)

    def _node_id(self, broker: NodeId | str) -> NodeId:
        """The node id that a saved broker has now."""
        if isinstance(broker, str):
            raise StateError(f"no broker is called {broker!r}")
        return self._bootstrap() if broker is None else broker

    def _state(self) -> SavedState:
        now_ms, window = self._clock.now_ms(), self._policy.window
        buckets = list(_saved(CLUSTER, self._policy.cluster, now_ms))
        for node_id, quotas in self._policy.brokers.items():
            buckets += _saved(self._name(node_id), quotas, now_ms)
        connections = [
            SavedRate(broker=self._name(node_id), memory=memory)
            for node_id, made in self._connections.brokers.items()
            for memory in made.rates.memories()
            if now_ms - memory.recorded_ms <= 2 * window.samples * window.window_ms
        ]
        topics = [
            SavedMeter(broker=self._name(node_id), topic=topic, figures=figures)
            for node_id, thresholds in self._thresholds.brokers.items()
            for topic, figures in thresholds.memories(now_ms)
        ]
        return SavedState(
            saved_ms=now_ms,
            settings=self._settings,
            buckets=tuple(buckets),
            connections=tuple(connections),
            topics=tuple(topics),
        )

    def _name(self, node_id: NodeId) -> NodeId:
        """What a broker is saved as: the one behind the bootstrap listener may be called otherwise after a restart."""
        return None if node_id == self._bootstrap() else node_id

    def _say_failing(self, error: StateError) -> None:
        if not self._failing:
            self._failing = True
            self._notify(Notice(event="state can't be saved", severity=Severity.ERROR, fields={"error": error.message}))


def _saved(broker: NodeId | str, quotas: BrokerQuotas, now_ms: int) -> Iterator[SavedBucket]:
    """The buckets of one broker (or of the cluster) that may hold somebody back."""
    for mode in quotas.modes:
        for quota_type in ENFORCED:
            manager = quotas.manager(quota_type, mode)
            span_ms = _span_ms(quota_type, mode, manager.window.samples * manager.window.window_ms)
            for memory in manager.memories():
                if now_ms - memory.recorded_ms <= span_ms:
                    yield SavedBucket(broker=broker, mode=mode, quota_type=quota_type, memory=memory)


def _span_ms(quota_type: QuotaType, mode: Mode, window_ms: int) -> int:
    """How long after its last record a bucket still counts: rates forget with their window, debts may last."""
    lasts = quota_type is QuotaType.CONTROLLER_MUTATION or mode is Mode.SMOOTH
    return IDLE_MS if lasts else 2 * window_ms


def _took(remember: _Remember) -> bool:
    """Whether figures could be taken; not those of another algorithm than is used now, nor what are none at all."""
    try:
        remember()
    except (ValueError, IndexError, OverflowError):
        return False
    return True
