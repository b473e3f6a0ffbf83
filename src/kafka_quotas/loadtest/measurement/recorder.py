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
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import compress, groupby
from operator import sub
from typing import Any

from kafka_quotas.loadtest.measurement.delivery import Unwatched
from kafka_quotas.loadtest.measurement.histogram import Histogram
from kafka_quotas.loadtest.measurement.traces import (
    MAX_ENTRIES,
    MAX_RESPONSES,
    MAX_SLOTS,
    AckTrace,
    Charge,
    ResponseTrace,
    Slot,
    Timeline,
    merged,
)

_NS_PER_MS = 1_000_000
_DEFAULT_WINDOW_MS = 11_000
_WIDTH = 8  # figures of an answer that waits


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
        waiting=min(2048, max(64, 100_000 // clients)),
    )


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
        self._lock = threading.Lock()

    def postpone(self, by_ns: int) -> None:
        """Let the load start later than was planned, before anything is recorded."""
        self._start_ns += by_ns
        self._measure_from_ns += by_ns

    def answered(
        self,
        now_ns: int,
        *,
        throttle_ms: int,
        intended_ns: int,
        sent_ns: int,
        charged: int = 1,
        broker: int = 0,
        records: int = 1,
        size: int = 1,
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
            self._sort_in_acknowledged(self._t_ms(now_ns), records, size)

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
            t_ms = self._t_ms(now_ns)
            self.responses.add_many([t_ms], [charged], [throttle_ms], [broker])
            self._sort_in_responses(t_ms, charged, [throttle_ms])

    def responded(self, now_ns: int, total: int) -> None:
        """Record the `total` of responses since the start, whose throttle times `throttled` reports."""
        with self._lock:
            self._fold()
            self.timeline.at(self._t_ms(now_ns)).responses += total - self.response_count
            self.response_count = total

    def latency(self, *, intended_ns: int, sent_ns: int, acked_ns: int, count: int = 1) -> None:
        """Record the latencies of `count` records, unless they belong to the warm-up."""
        if intended_ns >= self._measure_from_ns:
            with self._lock:
                self._sort_in_latencies([acked_ns], [intended_ns], [sent_ns], [count])

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
                self._sort_in_throttles(self.timeline.at(self._t_ms(now_ns)), [throttle_ms])

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

    def _sort_in_acknowledged(self, t_ms: int, records: int, size: int) -> None:
        self.acked += records
        self.acked_bytes += size
        self.trace.add(t_ms, size)
        slot = self.timeline.at(t_ms)
        slot.records += records
        slot.size += size

    def _sort_in_responses(self, t_ms: int, charged: int, throttle_times_ms: Sequence[int]) -> None:
        self.charged += charged
        self.response_count += len(throttle_times_ms)
        self.charges.add(t_ms, charged)
        slot = self.timeline.at(t_ms)
        slot.charged += charged
        slot.responses += len(throttle_times_ms)
        self._sort_in_throttles(slot, [each for each in throttle_times_ms if each > 0])

    def _sort_in_throttles(self, slot: Slot, times_ms: Sequence[int]) -> None:
        if times_ms:
            self.throttle_count += len(times_ms)
            self.throttle_sum_us += sum(times_ms) * 1000
            self.throttle_times.add_many([each * _NS_PER_MS for each in times_ms], [1] * len(times_ms))
            slot.throttled += len(times_ms)
            slot.throttle_sum_ms += sum(times_ms)
            slot.throttle_max_ms = max(slot.throttle_max_ms, *times_ms)

    def _fold(self) -> None:
        """Sort in what waits, which may grow meanwhile in the client's thread."""
        waiting = self._waiting
        if not waiting:
            return
        taken = waiting[: len(waiting)]
        del waiting[: len(taken)]  # both are one step of the interpreter: nothing between them is lost
        now_ns, charged, throttle_ms, brokers, records, sizes, intended_ns, sent_ns = (
            taken[at::_WIDTH] for at in range(_WIDTH)
        )
        times_ms = [(each - self._start_ns) // _NS_PER_MS for each in now_ns]
        self.responses.add_many(times_ms, charged, throttle_ms, brokers)
        end = 0
        for t_ms, together in groupby(times_ms):
            part = slice(end, end := end + len(list(together)))
            self._sort_in_responses(t_ms, sum(charged[part]), throttle_ms[part])
            self._sort_in_acknowledged(t_ms, sum(records[part]), sum(sizes[part]))
        if min(intended_ns) < self._measure_from_ns:
            is_measured = [each >= self._measure_from_ns for each in intended_ns]
            columns = (now_ns, intended_ns, sent_ns, records)
            now_ns, intended_ns, sent_ns, records = (list(compress(column, is_measured)) for column in columns)
        self._sort_in_latencies(now_ns, intended_ns, sent_ns, records)

    def _sort_in_latencies(
        self, acked_ns: Sequence[int], intended_ns: Sequence[int], sent_ns: Sequence[int], counts: Sequence[int]
    ) -> None:
        if counts:
            self.service_times.add_many(list(map(sub, acked_ns, sent_ns)), counts)
            self.schedule_delays.add_many(list(map(sub, sent_ns, intended_ns)), counts)
            self.response_times.add_many(list(map(sub, acked_ns, intended_ns)), counts)


_HISTOGRAMS = ("service_times", "schedule_delays", "response_times", "throttle_times")
_TRACES = ("trace", "charges")
_COUNTS = (
    "sent",
    "acked",
    "acked_bytes",
    "charged",
    "response_count",
    "dropped_count",
    "throttle_count",
    "throttle_sum_us",
)
_CHARGE = tuple(each.name for each in fields(Charge))


def recorder_document(recorder: Recorder) -> dict[str, Any]:
    """Return all that a recorder holds, every cell, slot and entry, as values that JSON has."""
    timeline, responses = recorder.timeline, list(recorder.responses)
    slots = [asdict(slot) for slot in timeline.slots()]
    histograms: dict[str, Histogram] = {name: getattr(recorder, name) for name in _HISTOGRAMS}
    traces: dict[str, AckTrace] = {name: getattr(recorder, name) for name in _TRACES}
    return {
        "histograms": {
            name: {"cells": sorted(each.counts.items()), "bounds": sorted(each.bounds.items())}
            for name, each in histograms.items()
        },
        "traces": {
            name: {"resolution_ms": each.resolution_ms, "entries": each.entries()} for name, each in traces.items()
        },
        "responses": {name: [getattr(row, name) for row in responses] for name in _CHARGE},
        "slot_ms": timeline.slot_ms,
        "slots": [{name: value for name, value in slot.items() if name != "rate"} for slot in slots],
        "counts": {name: getattr(recorder, name) for name in _COUNTS},
        "failures": dict(recorder.failures),
    }


def recorder_of(documents: Sequence[Mapping[str, Any]], *, window_ms: int) -> Recorder:
    """Return a recorder with the measurements in all documents, which began at the same time."""
    traces = {name: [each["traces"][name] for each in documents] for name in _TRACES}
    room = RecorderRoom(
        entries=max(1, *(sum(len(part["entries"]) for part in parts) for parts in traces.values())),
        responses=sum(len(each["responses"]["t_ms"]) for each in documents),
    )
    whole = Recorder(start_ns=0, measure_from_ns=0, window_ms=window_ms, room=room)
    for name, parts in traces.items():
        trace: AckTrace = getattr(whole, name)
        trace.resolution_ms = max(part["resolution_ms"] for part in parts)
        for t_ms, size in heapq.merge(*(map(tuple, part["entries"]) for part in parts)):
            trace.add(t_ms, size)
    for document in documents:
        for name, durations in document["histograms"].items():
            getattr(whole, name).take(dict(durations["cells"]), bounds=dict(durations["bounds"]))
        for name, count in document["counts"].items():
            setattr(whole, name, getattr(whole, name) + count)
        whole.failures.update(document["failures"])
    _add_responses(whole.responses, documents)
    slot_ms = max(each["slot_ms"] for each in documents)
    slots = sorted((Slot(**slot) for each in documents for slot in each["slots"]), key=lambda slot: slot.start_ms)
    whole.timeline = Timeline.of(merged(slots, slot_ms), slot_ms=slot_ms, window_ms=window_ms)
    return whole


def _add_responses(whole: ResponseTrace, documents: Sequence[Mapping[str, Any]]) -> None:
    traces = [list(zip(*(each["responses"][name] for name in _CHARGE), strict=True)) for each in documents]
    totals = [each["counts"]["response_count"] for each in documents]
    # A trace that was full ends the whole, which would lack its later responses.
    cut = (rows[-1][0] for rows, total in zip(traces, totals, strict=True) if 0 < len(rows) < total)
    end_ms = min(cut, default=None)
    for row in heapq.merge(*traces, key=lambda row: row[0]):
        if end_ms is None or row[0] <= end_ms:
            whole.add_many(*([figure] for figure in row))
