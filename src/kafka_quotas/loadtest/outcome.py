"""From what a run's clients recorded to what it found."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kafka_quotas.loadtest.engine import LoadClient
from kafka_quotas.loadtest.plan import LoadPlan
from kafka_quotas.loadtest.recorder import Recorder
from kafka_quotas.loadtest.result import EntityResult, LoadResult, SecondSample
from kafka_quotas.loadtest.verdict import Observation, entity_verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What is known of a run beside its clients.

    `enforcers`: how many brokers keep the quotas, by topic. `cpu_share` is this process's CPU time per second of
    the run.
    """

    started_ms: int
    elapsed_s: float
    enforcers: Mapping[str, int]
    cpu_share: float
    interrupted: bool


def load_result(plan: LoadPlan, clients: Sequence[LoadClient], facts: RunFacts) -> LoadResult:
    """The result of a run that has ended."""
    return LoadResult(
        bootstrap=plan.bootstrap,
        started_ms=facts.started_ms,
        elapsed_s=facts.elapsed_s,
        warmup_s=plan.warmup_s,
        window_samples=plan.window.samples,
        window_size_s=plan.window.window_s,
        record_size=plan.entities[0].record_size,
        cpu_share=facts.cpu_share,
        interrupted=facts.interrupted,
        entities=tuple(_entity_result(plan, client, facts) for client in clients),
    )


def _entity_result(plan: LoadPlan, client: LoadClient, facts: RunFacts) -> EntityResult:
    recorder, entity, ratio = client.recorder, client.entity, client.wire.ratio
    acks = [(float(t_ms), round(size * ratio)) for t_ms, size in recorder.trace.entries()]
    rate, quota = entity.arrivals_per_second, entity.quota
    enforcers = facts.enforcers[entity.topic]
    verdict = entity_verdict(
        Observation(
            acks=acks,
            offered_bytes_per_second=None if rate is None else float(rate) * entity.record_size * ratio,
            throttle_count=recorder.throttle_count,
            elapsed_ms=facts.elapsed_s * 1000,
        ),
        quota_bytes_per_second=None if quota is None else quota * enforcers,
        window_ms=plan.window_ms,
        warmup_ms=plan.warmup_s * 1000,
        direction=entity.direction,
    )
    return EntityResult(
        name=entity.name,
        direction=entity.direction,
        topic=entity.topic,
        enforcers=enforcers,
        verdict=verdict,
        sent=recorder.sent,
        acked=recorder.acked,
        unfinished=client.unfinished,
        failures=tuple(sorted(recorder.failures.items())),
        payload_bytes=recorder.acked_bytes,
        wire_ratio=ratio,
        service=recorder.service,
        schedule_delay=recorder.schedule_delay,
        response=recorder.response_latency,
        throttle=recorder.throttle,
        seconds=_seconds(acks, recorder, facts.elapsed_s),
    )


def _seconds(acks: list[tuple[float, int]], recorder: Recorder, elapsed_s: float) -> tuple[SecondSample, ...]:
    """The run second by second; the last one only if it is whole."""
    throttles = {slot.start_ms // 1000: slot.throttle_max_ms for slot in recorder.timeline.slots()}
    sums: dict[int, int] = {}
    for t_ms, size in acks:
        sums[int(t_ms) // 1000] = sums.get(int(t_ms) // 1000, 0) + size
    return tuple(
        SecondSample(second=second, bytes_per_second=float(sums.get(second, 0)), throttle_ms=throttles.get(second, 0))
        for second in range(int(elapsed_s))
    )
