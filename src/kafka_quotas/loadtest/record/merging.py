"""Merging of what several processes recorded of one client, on one time axis.

Invariants: every count and sum of the result is the sum of the parts, and a histogram has the cells of all of them.
Traces keep each entry in order of time, on the coarsest grid of the parts. Where a part lacks responses for want of
room, the result ends where that part does, so that no span of it is half full.
"""

import heapq
from collections.abc import Sequence

from kafka_quotas.loadtest.record.histogram import Histogram
from kafka_quotas.loadtest.record.recorder import Recorder, RecorderRoom
from kafka_quotas.loadtest.record.timeline import Timeline, merged
from kafka_quotas.loadtest.record.traces import AckTrace, ResponseTrace

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
    whole = Recorder(start_ns=0, measure_from_ns=0, window_ms=window_ms, room=_room(parts))
    for name in HISTOGRAMS:
        setattr(whole, name, merge_histograms([getattr(part, name) for part in parts]))
    for name in TRACES:
        _merge_acks(getattr(whole, name), [getattr(part, name) for part in parts])
    _merge_responses(whole.responses, parts)
    whole.timeline = _merge_timelines([part.timeline for part in parts], window_ms=window_ms)
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


def _room(parts: Sequence[Recorder]) -> RecorderRoom:
    """Return room for all that the parts have."""
    return RecorderRoom(
        entries=max(1, *(sum(len(getattr(part, name).entries()) for part in parts) for name in TRACES)),
        responses=sum(len(part.responses) for part in parts),
    )


def _merge_acks(whole: AckTrace, parts: Sequence[AckTrace]) -> None:
    whole.resolution_ms = max(part.resolution_ms for part in parts)
    for t_ms, size in heapq.merge(*(part.entries() for part in parts)):
        whole.add(t_ms, size)


def _merge_responses(whole: ResponseTrace, parts: Sequence[Recorder]) -> None:
    traces = [list(part.responses) for part in parts]
    is_full = [0 < len(trace) < part.response_count for trace, part in zip(traces, parts, strict=True)]
    end_ms = min((trace[-1].t_ms for trace, cut in zip(traces, is_full, strict=True) if cut), default=None)
    for each in heapq.merge(*traces, key=lambda response: response.t_ms):
        if end_ms is not None and each.t_ms > end_ms:
            break
        whole.add(each.t_ms, each.charged, each.throttle_ms, each.broker)


def _merge_timelines(parts: Sequence[Timeline], *, window_ms: int) -> Timeline:
    slot_ms = max(part.slot_ms for part in parts)
    slots = sorted((slot for part in parts for slot in part.slots()), key=lambda slot: slot.start_ms)
    return Timeline.of(merged(slots, slot_ms), slot_ms=slot_ms, window_ms=window_ms)
