"""Measurements of one client: exact counts, latencies, throttle times and traces of responses.

Three latencies are kept apart, because a throttled run is meant to lag: *service* (sent to acknowledged), *schedule
delay* (intended to sent) and *response* (intended to acknowledged). Only the last is what an application would feel.
None is corrected afterwards. Latencies, and with them the first failures, may be sampled, but nothing else.

A client that sees its responses reports each with `response`. One from which librdkafka hides them reports throttle
times above 0 with `throttled`, and the number of responses with `responded`.

What `answered` reports waits for the next `fold`, for it is cheaper to sort in many answers at once.

Memory is bounded by the recorder's `RecorderRoom`, however long the run is. The client's thread alone records. Other
threads call `fold`, and read.
"""

import heapq
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec

from kafka_quotas.loadtest.measurement.delivery import Unwatched
from kafka_quotas.loadtest.measurement.histogram import Histogram
from kafka_quotas.loadtest.measurement.traces import (
    MAX_ENTRIES,
    MAX_RESPONSES,
    MAX_SLOTS,
    AckTrace,
    ResponseTrace,
    Slot,
    Timeline,
    merged,
)

_NS_PER_MS = 1_000_000
_DEFAULT_WINDOW_MS = 11_000
_WIDTH = 8  # figures of an answer that waits
_MANY = 64  # answers that are worth the calls of NumPy


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottleSummary:
    """The throttle times above 0 that the server announced, in milliseconds."""

    count: int
    sum_ms: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    max_ms: float
    responses: int = 0
    """The number of all responses, 0 where the client can't count them."""

    @property
    def avg_ms(self) -> float | None:
        """The average over all responses, like `throttle-time-avg`, None where they were not counted."""
        if not self.responses:
            return None if self.count else 0.0
        return self.sum_ms / self.responses


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderRoom:
    """The limits of a recorder's memory."""

    entries: int = MAX_ENTRIES
    slots: int = MAX_SLOTS
    responses: int = MAX_RESPONSES
    waiting: int = 2048


def room_for(clients: int) -> RecorderRoom:
    """Return the room for each of N clients, which together stay within some hundred megabytes."""
    return RecorderRoom(
        entries=min(MAX_ENTRIES, max(2_000, 1_000_000 // clients)),
        slots=min(MAX_SLOTS, max(900, 200_000 // clients)),
        responses=min(MAX_RESPONSES, max(4_000, 6_000_000 // clients)),
        waiting=min(2048, max(_MANY, 100_000 // clients)),
    )


@cache
def _has_numpy() -> bool:
    if find_spec("numpy") is None:
        return False
    import numpy as np  # noqa: F401, PLC0415 - not everybody has it

    return True


class Recorder:
    """The measurements of one client.

    Times are nanoseconds of one monotonic clock, and `start_ns` is the start of the load. Latencies before
    `measure_from_ns` belong to the warm-up.
    """

    def __init__(
        self,
        *,
        start_ns: int,
        measure_from_ns: int,
        window_ms: int = _DEFAULT_WINDOW_MS,
        room: RecorderRoom | None = None,
    ) -> None:
        room = room or RecorderRoom()
        self._start_ns = start_ns
        self._measure_from_ns = measure_from_ns
        self.service_times = Histogram()
        self.schedule_delays = Histogram()
        self.response_times = Histogram()
        self.throttle_times = Histogram()
        self.trace = AckTrace(max_entries=room.entries)
        self.charges = AckTrace(max_entries=room.entries)
        self.responses = ResponseTrace(max_responses=room.responses)
        self.timeline = Timeline(window_ms=window_ms, max_slots=room.slots)
        self.failures: Counter[str] = Counter()
        self.unwatched = Unwatched()
        self.sent = 0
        self.acked = 0
        self.acked_bytes = 0
        self.charged = 0
        self.response_count = 0
        self.dropped_count = 0
        self.throttle_count = 0
        self.throttle_sum_us = 0
        self._waiting: list[int] = []
        self._most_waiting = room.waiting * _WIDTH
        self._has_numpy = _has_numpy()
        self._lock = threading.Lock()

    def postpone(self, by_ns: int) -> None:
        """Let the load start later than was planned, before anything is recorded."""
        self._start_ns += by_ns
        self._measure_from_ns += by_ns

    def answered(
        self,
        now_ns: int,
        *,
        charged: int,
        throttle_ms: int,
        broker: int,
        records: int,
        size: int,
        intended_ns: int,
        sent_ns: int,
    ) -> None:
        """Record a response that acknowledges records which were due together.

        It is the same as a `response`, an `acknowledged` and a `latency` of all these records.
        """
        waiting = self._waiting
        waiting += (now_ns, charged, throttle_ms, broker, records, size, intended_ns, sent_ns)
        if len(waiting) >= self._most_waiting:
            self.fold()

    def fold(self) -> None:
        """Sort in all answers that wait, in any thread."""
        with self._lock:
            self._fold()

    def acknowledged(self, now_ns: int, *, records: int, size: int) -> None:
        """Count `records` that were acknowledged (or received) by `now_ns`, with `size` bytes together."""
        with self._lock:
            self._fold()
            self._sort_in_acknowledged(now_ns, records, size)

    def response(self, now_ns: int, *, charged: int, throttle_ms: int, broker: int = 0) -> None:
        """Record a response.

        Args:
            now_ns: When it arrived.
            charged: The charge to the quota: bytes of the whole request (produce) or the whole response (fetch),
                partitions (mutations), 1 (requests, connections), 0 for a refused one.
            throttle_ms: The announced throttle time, 0 for none.
            broker: The node that answered, where there are several, as each keeps the quota for itself.
        """
        with self._lock:
            self._fold()
            self._sort_in_response(now_ns, charged, throttle_ms, broker)

    def responded(self, now_ns: int, total: int) -> None:
        """Record the `total` of responses since the start, whose throttle times `throttled` reports."""
        with self._lock:
            self._fold()
            self.timeline.at(self._t_ms(now_ns)).responses += total - self.response_count
            self.response_count = total

    def latency(self, *, intended_ns: int, sent_ns: int, acked_ns: int, count: int = 1) -> None:
        """Record the latencies of `count` records, unless they belong to the warm-up."""
        if intended_ns < self._measure_from_ns:
            return
        with self._lock:
            self._sort_in_latency(intended_ns, sent_ns, acked_ns, count)

    def arrival(self, *, intended_ns: int, arrived_ns: int) -> None:
        """Record the latency of a record that was read after its time, unless it belongs to the warm-up."""
        if intended_ns >= self._measure_from_ns:
            with self._lock:
                self.response_times.add(arrived_ns - intended_ns)

    def unanswered(self, *, intended_ns: int, sent_ns: int, until_ns: int, count: int = 1) -> None:
        """Record the latencies so far of `count` records without an answer, unless they belong to the warm-up."""
        if intended_ns >= self._measure_from_ns:
            with self._lock:
                self.service_times.add_bound(until_ns - sent_ns, count)
                self.schedule_delays.add(sent_ns - intended_ns, count)
                self.response_times.add_bound(until_ns - intended_ns, count)

    def unsent(self, *, intended_ns: int, until_ns: int, count: int = 1) -> None:
        """Record the wait so far of `count` records that were never sent, unless they belong to the warm-up."""
        if intended_ns >= self._measure_from_ns:
            with self._lock:
                self.schedule_delays.add_bound(until_ns - intended_ns, count)
                self.response_times.add_bound(until_ns - intended_ns, count)

    def throttled(self, now_ns: int, throttle_ms: int) -> None:
        """Record an announced throttle time above 0, as a time of 0 only ends a throttle."""
        if throttle_ms > 0:
            with self._lock:
                self._fold()
                self._sort_in_throttle(self.timeline.at(self._t_ms(now_ns)), throttle_ms)

    def dropped(self, count: int = 1) -> None:
        """Count N records or requests that were due and not sent, as too many were in flight."""
        self.dropped_count += count
        with self._lock:
            self._fold()
            self.timeline.latest.dropped += count

    def failed(self, error: str, count: int = 1) -> None:
        """Count N records that were given up with this error."""
        self.failures[error] += count
        with self._lock:
            self._fold()
            self.timeline.latest.failed += count

    @property
    def throttle(self) -> ThrottleSummary:
        """The throttle times of the whole run, warm-up included."""
        summary = self.throttle_times.summary()
        return ThrottleSummary(
            count=self.throttle_count,
            sum_ms=self.throttle_sum_us / 1000,
            p50_ms=summary.p50_us / 1000,
            p90_ms=summary.p90_us / 1000,
            p99_ms=summary.p99_us / 1000,
            max_ms=summary.max_us / 1000,
            responses=self.response_count,
        )

    def _t_ms(self, now_ns: int) -> int:
        return (now_ns - self._start_ns) // _NS_PER_MS

    def _sort_in_acknowledged(self, now_ns: int, records: int, size: int) -> None:
        self.acked += records
        self.acked_bytes += size
        t_ms = self._t_ms(now_ns)
        self.trace.add(t_ms, size)
        slot = self.timeline.at(t_ms)
        slot.records += records
        slot.size += size

    def _sort_in_response(self, now_ns: int, charged: int, throttle_ms: int, broker: int) -> None:
        self.charged += charged
        self.response_count += 1
        t_ms = self._t_ms(now_ns)
        self.charges.add(t_ms, charged)
        self.responses.add(t_ms, charged, throttle_ms, broker)
        slot = self.timeline.at(t_ms)
        slot.charged += charged
        slot.responses += 1
        if throttle_ms > 0:
            self._sort_in_throttle(slot, throttle_ms)

    def _sort_in_throttle(self, slot: Slot, throttle_ms: int) -> None:
        self.throttle_count += 1
        self.throttle_sum_us += throttle_ms * 1000
        self.throttle_times.add(throttle_ms * _NS_PER_MS)
        slot.throttled += 1
        slot.throttle_sum_ms += throttle_ms
        slot.throttle_max_ms = max(slot.throttle_max_ms, throttle_ms)

    def _sort_in_latency(self, intended_ns: int, sent_ns: int, acked_ns: int, count: int) -> None:
        self.service_times.add(acked_ns - sent_ns, count)
        self.schedule_delays.add(sent_ns - intended_ns, count)
        self.response_times.add(acked_ns - intended_ns, count)

    def _fold(self) -> None:
        """Sort in what waits, which may grow meanwhile in the client's thread."""
        waiting = self._waiting
        if not waiting:
            return
        taken = waiting[: len(waiting)]
        del waiting[: len(taken)]  # both are one step of the interpreter: nothing between them is lost
        if self._has_numpy and len(taken) >= _MANY * _WIDTH:
            self._sort_in_many(taken)
            return
        for at in range(0, len(taken), _WIDTH):
            now_ns, charged, throttle_ms, broker, records, size, intended_ns, sent_ns = taken[at : at + _WIDTH]
            self._sort_in_response(now_ns, charged, throttle_ms, broker)
            self._sort_in_acknowledged(now_ns, records, size)
            if intended_ns >= self._measure_from_ns:
                self._sort_in_latency(intended_ns, sent_ns, now_ns, records)

    def _sort_in_many(self, taken: list[int]) -> None:
        import numpy as np  # noqa: PLC0415 - loaded by now

        rows = np.fromiter(taken, np.int64, len(taken)).reshape(-1, _WIDTH)
        now_ns, charged, throttle_ms, brokers, records, sizes, intended_ns, sent_ns = rows.T
        t_ms = (now_ns - self._start_ns) // _NS_PER_MS
        self.charged += int(charged.sum())
        self.response_count += len(rows)
        self.acked += int(records.sum())
        self.acked_bytes += int(sizes.sum())
        self.charges.add_many(t_ms, charged)
        self.trace.add_many(t_ms, sizes)
        self.responses.add_many(t_ms, charged, throttle_ms, brokers)
        self.timeline.add_many(t_ms, records=records, size=sizes, charged=charged, throttle_ms=throttle_ms)
        is_throttled = throttle_ms > 0
        if is_throttled.any():
            self.throttle_count += int(is_throttled.sum())
            self.throttle_sum_us += int(throttle_ms.sum()) * 1000
            self.throttle_times.add_many(throttle_ms[is_throttled] * _NS_PER_MS, np.ones(is_throttled.sum(), np.int64))
        is_measured = intended_ns >= self._measure_from_ns
        if not is_measured.all():
            now_ns, intended_ns, sent_ns, records = (
                each[is_measured] for each in (now_ns, intended_ns, sent_ns, records)
            )
        self.service_times.add_many(now_ns - sent_ns, records)
        self.schedule_delays.add_many(sent_ns - intended_ns, records)
        self.response_times.add_many(now_ns - intended_ns, records)


HISTOGRAMS = ("service_times", "schedule_delays", "response_times", "throttle_times")
TRACES = ("trace", "charges")
COUNTS = (
    "sent",
    "acked",
    "acked_bytes",
    "charged",
    "response_count",
    "dropped_count",
    "throttle_count",
    "throttle_sum_us",
)


def merge_recorders(parts: Sequence[Recorder], *, window_ms: int) -> Recorder:
    """Return a recorder with the measurements of all parts, which began at the same time."""
    room = RecorderRoom(
        entries=max(1, *(sum(len(getattr(part, name).entries()) for part in parts) for name in TRACES)),
        responses=sum(len(part.responses) for part in parts),
    )
    whole = Recorder(start_ns=0, measure_from_ns=0, window_ms=window_ms, room=room)
    for name in HISTOGRAMS:
        setattr(whole, name, merge_histograms([getattr(part, name) for part in parts]))
    for name in TRACES:
        trace: AckTrace = getattr(whole, name)
        traces: list[AckTrace] = [getattr(part, name) for part in parts]
        trace.resolution_ms = max(each.resolution_ms for each in traces)
        for t_ms, size in heapq.merge(*(each.entries() for each in traces)):
            trace.add(t_ms, size)
    _merge_responses(whole.responses, parts)
    slot_ms = max(part.timeline.slot_ms for part in parts)
    slots = sorted((slot for part in parts for slot in part.timeline.slots()), key=lambda slot: slot.start_ms)
    whole.timeline = Timeline.of(merged(slots, slot_ms), slot_ms=slot_ms, window_ms=window_ms)
    for name in COUNTS:
        setattr(whole, name, sum(getattr(part, name) for part in parts))
    for part in parts:
        whole.failures.update(part.failures)
    return whole


def merge_histograms(parts: Sequence[Histogram]) -> Histogram:
    """Return a histogram with the durations of all parts."""
    whole = Histogram()
    for part in parts:
        whole.take(part.counts, bounds=part.bounds)
    return whole


def _merge_responses(whole: ResponseTrace, parts: Sequence[Recorder]) -> None:
    traces = [list(part.responses) for part in parts]
    is_full = [0 < len(trace) < part.response_count for trace, part in zip(traces, parts, strict=True)]
    end_ms = min((trace[-1].t_ms for trace, cut in zip(traces, is_full, strict=True) if cut), default=None)
    for each in heapq.merge(*traces, key=lambda response: response.t_ms):
        if end_ms is not None and each.t_ms > end_ms:
            break
        whole.add(each.t_ms, int(each.charged), each.throttle_ms, each.broker)
