"""From what a run's clients recorded to what it found."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from kafka_quotas.loadtest.conclusion import Evidence, conclude
from kafka_quotas.loadtest.engine import LoadClient
from kafka_quotas.loadtest.machine import warnings
from kafka_quotas.loadtest.plan import EntityLoad, LoadPlan
from kafka_quotas.loadtest.rate_unit import UNITS, RateUnit
from kafka_quotas.loadtest.recorder import Recorder
from kafka_quotas.loadtest.result import CpuUse, EntityResult, LoadResult, SecondSample, WindowSample
from kafka_quotas.loadtest.timeline import Slot
from kafka_quotas.loadtest.verdict import EntityVerdict, Observation, entity_verdict, shared_verdict, unjudged_verdict
from kafka_quotas.loadtest.workload import Arrival, MutationFlood, Workload

_SIGMAS = 3  # of arrivals at random that a verdict allows to be missing


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What is known of a run beside its clients.

    `enforcers`: how many brokers keep the quotas, by topic.
    """

    started_ms: int
    elapsed_s: float
    enforcers: Mapping[str, int]
    cpu: CpuUse
    interrupted: bool
    title: str = "load-test"


def load_result(plan: LoadPlan, clients: Sequence[LoadClient], facts: RunFacts) -> LoadResult:
    """The result of a run that has ended, judged by what its clients recorded; `conclude` judges it by more."""
    result = LoadResult(
        bootstrap=plan.bootstrap,
        run_id=plan.run_id,
        title=facts.title,
        started_ms=facts.started_ms,
        elapsed_s=facts.elapsed_s,
        warmup_s=plan.warmup_s,
        window_samples=plan.window.samples,
        window_size_s=plan.window.window_s,
        cpu=facts.cpu,
        interrupted=facts.interrupted,
        entities=tuple(
            _entity_result(plan, client, facts, verdict)
            for client, verdict in zip(clients, _verdicts(plan, clients, facts), strict=True)
        ),
    )
    return conclude(result, Evidence(warnings=warnings(result)))


def _entity_result(plan: LoadPlan, client: LoadClient, facts: RunFacts, verdict: EntityVerdict) -> EntityResult:
    recorder, entity = client.recorder, client.entity
    return EntityResult(
        name=entity.name,
        workload=entity.workload,
        client=entity.client,
        topic=entity.topic,
        enforcers=_enforcers(plan, client, facts),
        verdict=verdict,
        sent=recorder.sent,
        acked=recorder.acked,
        unfinished=client.unfinished,
        dropped=recorder.dropped_count,
        failures=tuple(sorted(recorder.failures.items())),
        payload_bytes=recorder.acked_bytes,
        wire_ratio=client.wire.ratio,
        service=recorder.service,
        schedule_delay=recorder.schedule_delay,
        response=recorder.response_latency,
        throttle=recorder.throttle,
        sample_s=recorder.timeline.slot_ms / 1000,
        seconds=_seconds(client, facts.elapsed_s),
        windows=_windows(client, facts.elapsed_s),
        control=entity.control,
        shares_quota=bool(entity.bucket),
        recorder=recorder,
    )


def _verdicts(plan: LoadPlan, clients: Sequence[LoadClient], facts: RunFacts) -> list[EntityVerdict]:
    """The verdict on every client; those of one bucket are judged by their sum."""
    sharing: dict[str, list[LoadClient]] = {}
    for client in clients:
        if client.entity.bucket:
            sharing.setdefault(client.entity.bucket, []).append(client)
    together = {bucket: _verdict(plan, members, facts) for bucket, members in sharing.items()}
    return [
        shared_verdict(own, together[bucket], others=len(sharing[bucket]) - 1)
        if (bucket := client.entity.bucket)
        else own
        for client in clients
        for own in (_verdict(plan, [client], facts),)
    ]


def _verdict(plan: LoadPlan, clients: Sequence[LoadClient], facts: RunFacts) -> EntityVerdict:
    """The verdict on the sum of some clients that one quota limits, most often one alone."""
    entity = clients[0].entity
    start_s = min(client.entity.start_s for client in clients)
    end_s = max(min(client.entity.stop_s or facts.elapsed_s, facts.elapsed_s) for client in clients)
    seen = _seen(clients, elapsed_s=max(end_s - start_s, 0.0), end_s=end_s)
    warmup_ms = max(plan.warmup_s - start_s, 0.0) * 1000
    quota = None if entity.quota is None else entity.quota * _enforcers(plan, clients[0], facts)
    if not entity.is_judged:
        return unjudged_verdict(seen, quota=quota, window_ms=plan.window_ms, warmup_ms=warmup_ms)
    return entity_verdict(
        seen,
        quota=quota,
        window_ms=plan.window_ms,
        warmup_ms=warmup_ms,
        direction=entity.direction,
    )


def _seen(clients: Sequence[LoadClient], *, elapsed_s: float, end_s: float) -> Observation:
    """What is judged of some clients of one workload together."""
    entity = clients[0].entity
    offers = [_offered(client.entity, client.wire.ratio) for client in clients]
    limited_ms = [first for client in clients if (first := _first_throttle_ms(client.recorder)) is not None]
    traces = [charged_trace(client) for client in clients]
    return Observation(
        acks=traces[0] if len(traces) == 1 else sorted(chain.from_iterable(traces)),
        offered=None if None in offers else sum(offer for offer in offers if offer is not None),
        throttle_count=sum(client.recorder.throttle_count for client in clients),
        elapsed_ms=elapsed_s * 1000,
        end_ms=None if entity.workload is Workload.MUTATE else end_s * 1000,
        unit=UNITS[entity.workload],
        limited_from_ms=min(limited_ms, default=None) if entity.workload is Workload.MUTATE else None,
        offer_slack=max(_offer_slack(client.entity, elapsed_s) for client in clients),
    )


def _enforcers(plan: LoadPlan, client: LoadClient, facts: RunFacts) -> int:
    """How many brokers keep the client's quota, each for itself."""
    return facts.enforcers.get(client.entity.topic, plan.enforcers or 1)


def charged_trace(client: LoadClient) -> list[tuple[float, int]]:
    """What the client's quota was charged with over time, exactly where the client sees its responses.

    Where it doesn't it is the payload that was acknowledged (or received), times wire bytes per payload byte.
    """
    recorder = client.recorder
    if recorder.charged:
        return [(float(t_ms), amount) for t_ms, amount in recorder.charges.entries()]
    return [(float(t_ms), round(size * client.wire.ratio)) for t_ms, size in recorder.trace.entries()]


def _offered(entity: EntityLoad, wire_ratio: float) -> float | None:
    """What the client offered in the unit of its rate; None for all it could."""
    if entity.arrivals_per_second is None:
        return None
    rate = float(entity.arrivals_per_second)
    if UNITS[entity.workload] is RateUnit.BYTES:
        return rate * entity.record_size * wire_ratio
    flood = entity.flood
    return rate * flood.topics_per_request * flood.partitions_per_topic if isinstance(flood, MutationFlood) else rate


def _offer_slack(entity: EntityLoad, elapsed_s: float) -> float:
    """The share of arrivals that may be missing by their nature: random ones, or those of a burst cut off."""
    expected = float(entity.arrivals_per_second or 0) * elapsed_s
    if expected <= 0:
        return 0.0
    if entity.arrival is Arrival.POISSON:
        return _SIGMAS / math.sqrt(expected)
    return entity.burst_size / expected if entity.arrival is Arrival.BURST else 0.0


def _first_throttle_ms(recorder: Recorder) -> float | None:
    return next((float(slot.start_ms) for slot in recorder.timeline.slots() if slot.throttled), None)


def _seconds(client: LoadClient, elapsed_s: float) -> tuple[SecondSample, ...]:
    """The run second by second (or in longer samples, all alike), silence included; the last only if it is whole."""
    recorder = client.recorder
    slot_ms = recorder.timeline.slot_ms
    slots = {slot.start_ms: slot for slot in recorder.timeline.slots()}
    starts = range(0, int(elapsed_s * 1000) - slot_ms + 1, slot_ms)
    return tuple(_second(slots.get(start, Slot(start_ms=start)), client, slot_ms) for start in starts)


def _second(slot: Slot, client: LoadClient, slot_ms: int) -> SecondSample:
    return SecondSample(
        second=slot.start_ms // 1000,
        rate=_charged(slot, client) / slot_ms * 1000,
        records=slot.records,
        responses=slot.responses,
        throttled=slot.throttled,
        throttle_sum_ms=slot.throttle_sum_ms,
        throttle_max_ms=slot.throttle_max_ms,
        failed=slot.failed,
        dropped=slot.dropped,
    )


def _windows(client: LoadClient, elapsed_s: float) -> tuple[WindowSample, ...]:
    """The run by quota windows, the first of which fills from nothing; the last is as long as the run left it."""
    timeline = client.recorder.timeline
    samples = []
    for slot in timeline.windows():
        span_ms = min(timeline.window_ms, elapsed_s * 1000 - slot.start_ms)
        if span_ms > 0:
            samples.append(_window(slot, client, span_ms))
    return tuple(samples)


def _window(slot: Slot, client: LoadClient, span_ms: float) -> WindowSample:
    known = slot.responses or not slot.throttled
    return WindowSample(
        start_s=slot.start_ms / 1000,
        length_s=span_ms / 1000,
        rate=_charged(slot, client) / span_ms * 1000,
        responses=slot.responses,
        throttled=slot.throttled,
        throttle_avg_ms=slot.throttle_sum_ms / max(slot.responses, 1) if known else None,
        throttle_max_ms=slot.throttle_max_ms,
    )


def _charged(slot: Slot, client: LoadClient) -> float:
    return float(slot.charged) if client.recorder.charged else slot.size * client.wire.ratio
