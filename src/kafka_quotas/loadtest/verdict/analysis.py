"""Analysis of a run: its clients' measurements, warnings if the tool was the bottleneck, and shards made one run.

Shards take the way of every run: merged recorders become a result, which is judged by the thresholds and evidence of
all shards. A shard that proves nothing makes the whole void.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain

from kafka_quotas.core.errors import UsageError
from kafka_quotas.loadtest.clients.engine import WireCount
from kafka_quotas.loadtest.judgement import Aspect, State
from kafka_quotas.loadtest.measurement.delivery import Books, Delivery
from kafka_quotas.loadtest.measurement.recorder import Recorder, recorder_document, recorder_of
from kafka_quotas.loadtest.measurement.traces import Slot
from kafka_quotas.loadtest.plan.client_verdict import (
    ClientVerdict,
    Observation,
    ObservationKind,
    entity_verdict,
    settling_ms,
    shared_verdict,
    unjudged_verdict,
)
from kafka_quotas.loadtest.plan.plan import WHOLE, ClientLoad, EntityKey, LaterQuota, LoadPlan
from kafka_quotas.loadtest.plan.schedule import mean_rate, rate_bounds
from kafka_quotas.loadtest.plan.workload import UNITS, Arrival, MutationFlood, RateUnit, Workload
from kafka_quotas.loadtest.results.result import ClientResult, CpuUse, LoadResult, WindowSample
from kafka_quotas.loadtest.results.run_file import Shard
from kafka_quotas.loadtest.verdict.judging import Evidence, judge_run
from kafka_quotas.loadtest.verdict.thresholds import parse_expectation

_BUSY_PYTHON = 0.9  # of a second per second: Python runs one thread at a time
_BUSY_MACHINE = 0.9  # of all cores
_LATE_MS = 20.0  # a sleeping thread of an idle machine wakes within a fraction of that
_BUSY_LATE_MS = 5.0  # takes a share of a quota that is given in many small parts
_BUSY_SHARE = 0.8  # of the lower bound: a machine that takes more is busier than any verdict allows for
_LATE_US = 100_000  # p99 from intended to sent, of a client that no quota held back


def warnings(result: LoadResult) -> tuple[str, ...]:
    """Return the reasons to doubt a run's figures, such as a lack of CPU, in a sentence each."""
    found = []
    cpu = result.cpu
    if cpu.python >= _BUSY_PYTHON:
        found.append(
            f"the load tester was the bottleneck: its Python threads took {cpu.python:.0%} of the one core they can "
            "use; rates and latencies may be its own. Offer less, or spread the load over several processes"
        )
    elif is_bottleneck(cpu):
        found.append(
            f"the load tester was the bottleneck: it took {cpu.process:.0%} of a core on a machine of {cpu.cores}; "
            "rates and latencies may be its own"
        )
    elif cpu.late_ms >= _LATE_MS:
        found.append(
            f"the machine was too busy for this run: threads waited {cpu.late_ms:.0f} ms for a core on average; rates "
            "and latencies may be its own"
        )
    late = [
        entity
        for entity in result.entities
        if entity.verdict.offered is not None and not entity.throttle.count and entity.schedule_delay.p99_us > _LATE_US
    ]
    if late:
        worst = max(late, key=lambda entity: entity.schedule_delay.p99_us)
        found.append(
            f"{len(late)} unthrottled clients were sent late, {worst.name.label} by "
            f"{worst.schedule_delay.p99_us / 1e6:.2f} s (p99): the tool or the target could not keep the schedule"
        )
    dropped = sum(entity.dropped for entity in result.entities)
    if dropped:
        found.append(f"{dropped} arrivals were dropped by the load tester: too many were under way already")
    return tuple(found)


def is_bottleneck(cpu: CpuUse) -> bool:
    """Check whether rates and latencies may be the load tester's own, for a lack of CPU."""
    return cpu.python >= _BUSY_PYTHON or cpu.process >= _BUSY_MACHINE * cpu.cores


_MOMENT_MS = 2000.0  # in which a busy machine answers
_LONGEST_SPACING = 10  # of random arrivals, times the mean
_SIGMAS = 3  # of arrivals at random that a verdict allows to be missing


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredClient:
    """One client with the measurements of it, by one process or by several."""

    entity: ClientLoad
    recorder: Recorder
    wire: WireCount
    unfinished: int
    books: Books
    enforcers: int
    """The number of brokers that kept its quota."""


def load_result(plan: LoadPlan, clients: Sequence[MeasuredClient], run: LoadResult) -> LoadResult:
    """Return the result of an ended run, given without clients, judged by their measurements alone."""
    verdicts = zip(clients, _verdicts(plan, clients, run.elapsed_s), strict=True)
    entities = (_entity_result(client, run.elapsed_s, _unless_busy(verdict, run.cpu)) for client, verdict in verdicts)
    result = replace(run, entities=tuple(entities))
    return judge_run(result, Evidence(warnings=warnings(result)))


def _unless_busy(verdict: ClientVerdict, cpu: CpuUse) -> ClientVerdict:
    ratio, lower = verdict.ratio or 0.0, verdict.lower or 0.0
    is_busy = cpu.late_ms >= _BUSY_LATE_MS or is_bottleneck(cpu)
    if verdict.state is not State.NOT_MET or not is_busy or not _BUSY_SHARE * lower <= ratio < lower:
        return verdict
    reason = f"; the machine was too busy to judge that: threads waited {cpu.late_ms:.1f} ms for a core on average"
    return replace(verdict, too_short=True, evidence=verdict.evidence + reason)


def _entity_result(client: MeasuredClient, elapsed_s: float, verdict: ClientVerdict) -> ClientResult:
    recorder, entity = client.recorder, client.entity
    return ClientResult(
        name=entity.name,
        workload=entity.workload,
        client=entity.client,
        topic=entity.topic,
        enforcers=client.enforcers,
        verdict=verdict,
        sent=recorder.sent,
        acked=recorder.acked,
        unfinished=client.unfinished,
        dropped=recorder.dropped_count,
        books=client.books,
        failures=tuple(sorted(recorder.failures.items())),
        payload_bytes=recorder.acked_bytes,
        wire_ratio=client.wire.ratio,
        service=recorder.service_times.summary(),
        schedule_delay=recorder.schedule_delays.summary(),
        response=recorder.response_times.summary(),
        throttle=recorder.throttle,
        sample_s=recorder.timeline.slot_ms / 1000,
        seconds=_seconds(client, elapsed_s),
        windows=_windows(client, elapsed_s),
        quotas=entity.quotas,
        control=entity.control,
        shares_quota=bool(entity.bucket),
        recorder=recorder,
    )


def _verdicts(plan: LoadPlan, clients: Sequence[MeasuredClient], elapsed_s: float) -> list[ClientVerdict]:
    sharing: dict[str, list[MeasuredClient]] = {}
    for client in clients:
        if client.entity.bucket:
            sharing.setdefault(client.entity.bucket, []).append(client)
    together = {bucket: _verdict(plan, members, elapsed_s) for bucket, members in sharing.items()}
    return [
        shared_verdict(own, together[bucket], others=len(sharing[bucket]) - 1, unit=UNITS[client.entity.workload])
        if (bucket := client.entity.bucket)
        else own
        for client in clients
        for own in (_verdict(plan, [client], elapsed_s),)
    ]


def _verdict(plan: LoadPlan, clients: Sequence[MeasuredClient], elapsed_s: float) -> ClientVerdict:
    entity = clients[0].entity
    start_s = min(client.entity.start_s for client in clients)
    end_s = max(min(client.entity.stop_s or elapsed_s, elapsed_s) for client in clients)
    from_s, enforcers = max(plan.warmup_s, start_s), clients[0].enforcers
    seen = _seen(clients, from_s=from_s, elapsed_s=max(end_s - start_s, 0.0), end_s=end_s)
    warmup_ms = max(plan.warmup_s - start_s, 0.0) * 1000
    quota = None if entity.quota is None else entity.quota * enforcers
    is_judged = entity.is_judged and entity.share == WHOLE
    is_staged = is_judged and _crosses(clients, quota, from_s=from_s, to_s=end_s)
    if is_judged and entity.later is not None:
        return _changed_verdict(plan, clients, entity.later, end_s=end_s)
    if is_staged or not is_judged:
        return unjudged_verdict(seen, quota=quota, window_ms=plan.window_ms, warmup_ms=warmup_ms, is_staged=is_staged)
    return entity_verdict(seen, quota=quota, window_ms=plan.window_ms, warmup_ms=warmup_ms)


def _changed_verdict(
    plan: LoadPlan, clients: Sequence[MeasuredClient], later: LaterQuota, *, end_s: float
) -> ClientVerdict:
    quota, unit = later.quota * clients[0].enforcers, UNITS[clients[0].entity.workload]
    seen = _seen(clients, from_s=later.at_s, elapsed_s=max(end_s - later.at_s, 0.0), end_s=end_s)
    settled_ms = settling_ms(seen.acks, from_ms=later.at_s * 1000, quota=quota, window_ms=plan.window_ms)
    if settled_ms is None:
        verdict = unjudged_verdict(seen, quota=quota, window_ms=plan.window_ms, warmup_ms=0.0)
        evidence = f"it never came down to {unit.text(quota)}, which was set after {later.at_s:g} s"
        return replace(verdict, kind=ObservationKind.GREEDY, ok=False, evidence=evidence)
    from_ms = later.at_s * 1000 + settled_ms
    rest = replace(
        seen,
        acks=[(t_ms, size) for t_ms, size in seen.acks if t_ms >= from_ms],
        elapsed_ms=max(end_s * 1000 - from_ms, 0.0),
    )
    verdict = entity_verdict(rest, quota=quota, window_ms=plan.window_ms, warmup_ms=0.0)
    settled = f"{unit.text(quota)} was set after {later.at_s:g} s and held {settled_ms / 1000:.1f} s later"
    return replace(verdict, settled_ms=settled_ms, evidence=f"{verdict.evidence}; {settled}")


def _seen(clients: Sequence[MeasuredClient], *, from_s: float, elapsed_s: float, end_s: float) -> Observation:
    entity = clients[0].entity
    offers = [_offered(client, from_s=from_s, to_s=end_s) for client in clients]
    timelines = [client.recorder.timeline for client in clients]
    limited_ms = (each.start_ms + line.slot_ms for line in timelines for each in line.slots() if each.throttled)
    traces = [charged_trace(client) for client in clients]
    return Observation(
        acks=traces[0] if len(traces) == 1 else sorted(chain.from_iterable(traces)),
        offered=None if None in offers else sum(offer for offer in offers if offer is not None),
        throttle_count=sum(client.recorder.throttle_count for client in clients),
        elapsed_ms=elapsed_s * 1000,
        end_ms=None if isinstance(entity.flood, MutationFlood) and entity.flood.total_topics else end_s * 1000,
        patience_ms=max(patience_ms(client.entity, client.recorder) for client in clients),
        workload=entity.workload,
        limited_from_ms=min(map(float, limited_ms), default=None) if entity.workload is Workload.MUTATE else None,
        mean_over_ms=(from_s * 1000, end_s * 1000)
        if end_s > from_s and any(client.entity.ramp for client in clients)
        else None,
        offer_slack=max(_offer_slack(client.entity, elapsed_s) for client in clients),
        under_way=sum(map(_under_way, clients)) * clients[0].enforcers,
    )


def _under_way(client: MeasuredClient) -> float:
    """Return what a client has under way to one broker at once, 0 for what no window blurs."""
    entity, charges = client.entity, client.recorder.responses
    if not (entity.workload.moves_records or entity.workload is Workload.MUTATE):
        return 0.0
    planned = max(entity.request_bytes, entity.record_size) if entity.workload.moves_records else entity.arrival_cost
    mean = client.wire.wire_bytes / client.wire.requests if client.wire.requests else 0  # whole batches may be larger
    return entity.connections * (max((each.charged for each in charges), default=0) or max(planned, mean))


def patience_ms(entity: ClientLoad, recorder: Recorder) -> float:
    """Return a client's longest plausible silence: a throttle time, the wait for an arrival, and a moment."""
    rate = float(entity.arrivals_per_second or 0)
    spacing = {Arrival.BURST: entity.burst_size, Arrival.POISSON: _LONGEST_SPACING}.get(entity.arrival, 1)
    spacing *= entity.share.count
    return recorder.throttle.max_ms + (spacing / rate * 1000 if rate else 0) + _MOMENT_MS


def charged_trace(client: MeasuredClient) -> list[tuple[float, int]]:
    """Return the charges to the client's quota over time.

    They are exact where the client sees its responses. Otherwise each is the acknowledged (or received) payload times
    the bytes on the wire per byte of payload.
    """
    recorder = client.recorder
    if recorder.charged:
        return [(float(t_ms), amount) for t_ms, amount in recorder.charges.entries()]
    return [(float(t_ms), round(size * client.wire.ratio)) for t_ms, size in recorder.trace.entries()]


def _crosses(clients: Sequence[MeasuredClient], quota: float | None, *, from_s: float, to_s: float) -> bool:
    """Return whether clients offer now less and now more than their quota, which promises no one rate."""
    if quota is None or not any(client.entity.ramp for client in clients):
        return False
    bounds = [_bounds(client, from_s=from_s, to_s=to_s) for client in clients]
    return sum(low for low, _ in bounds) <= quota < sum(high for _, high in bounds)


def _bounds(client: MeasuredClient, *, from_s: float, to_s: float) -> tuple[float, float]:
    entity = client.entity
    if not entity.ramp:
        offered = _offered(client, from_s=from_s, to_s=to_s)
        return (math.inf, math.inf) if offered is None else (offered, offered)
    low, high = rate_bounds(entity.ramp, from_s=from_s - entity.start_s, to_s=to_s - entity.start_s)
    return low * _cost(client), high * _cost(client)


def _offered(client: MeasuredClient, *, from_s: float, to_s: float) -> float | None:
    entity = client.entity
    if entity.arrivals_per_second is None:
        return None
    rate = float(entity.arrivals_per_second)
    if entity.ramp:
        rate = mean_rate(entity.ramp, from_s=from_s - entity.start_s, to_s=to_s - entity.start_s)
    return rate * _cost(client)


def _cost(client: MeasuredClient) -> float:
    entity = client.entity
    wire = client.wire.ratio if UNITS[entity.workload] is RateUnit.BYTES else 1.0
    return entity.arrival_cost * wire / entity.share.count


def _offer_slack(entity: ClientLoad, elapsed_s: float) -> float:
    """Return the share of arrivals that may be missing where they are random, or where a burst is cut off."""
    expected = float(entity.arrivals_per_second or 0) * elapsed_s
    if expected <= 0:
        return 0.0
    if entity.arrival is Arrival.POISSON:
        return _SIGMAS / math.sqrt(expected)
    return entity.burst_size / expected if entity.arrival is Arrival.BURST else 0.0


def _seconds(client: MeasuredClient, elapsed_s: float) -> tuple[Slot, ...]:
    recorder = client.recorder
    slot_ms = recorder.timeline.slot_ms
    slots = {slot.start_ms: slot for slot in recorder.timeline.slots()}
    starts = range(0, int(elapsed_s * 1000) - slot_ms + 1, slot_ms)
    whole = (slots.get(start, Slot(start_ms=start)) for start in starts)
    return tuple(replace(slot, rate=_charged(slot, client) / slot_ms * 1000) for slot in whole)


def _windows(client: MeasuredClient, elapsed_s: float) -> tuple[WindowSample, ...]:
    timeline = client.recorder.timeline
    spans = ((slot, min(timeline.window_ms, elapsed_s * 1000 - slot.start_ms)) for slot in timeline.windows())
    return tuple(
        WindowSample(
            start_s=slot.start_ms / 1000,
            length_s=span_ms / 1000,
            rate=_charged(slot, client) / span_ms * 1000,
            responses=slot.responses,
            throttled=slot.throttled,
            throttle_avg_ms=None if unknown else slot.throttle_sum_ms / max(slot.responses, 1),
            throttle_max_ms=slot.throttle_max_ms,
        )
        for slot, span_ms in spans
        for unknown in (slot.throttled and not slot.responses,)
        if span_ms > 0
    )


def _charged(slot: Slot, client: MeasuredClient) -> float:
    return float(slot.charged) if client.recorder.charged else slot.size * client.wire.ratio


_EARLY_MS = 1000  # that a shard may end before others: less is the time that stopping its clients takes


def merge_shards(shards: Sequence[Shard]) -> LoadResult:
    """Return the result of the whole load, from all of its shards in any order.

    Raises:
        UsageError: A shard is missing or given twice, or they are not of one load.
    """
    ordered = sorted(shards, key=lambda shard: shard.plan.entities[0].share.number)
    _check(ordered)
    results = [shard.result for shard in ordered]
    plan = ordered[0].plan
    plan = replace(plan, entities=tuple(replace(each, share=WHOLE) for each in plan.entities))
    clients = [
        _client(entity, [result.entities[at] for result in results], plan) for at, entity in enumerate(plan.entities)
    ]
    all_cpu = [result.cpu for result in results]
    worst = {name: max(getattr(cpu, name) for cpu in all_cpu) for name in ("process", "python", "late_ms")}
    run = replace(
        results[0],
        elapsed_s=max(result.elapsed_s for result in results),
        cpu=CpuUse(cores=min(cpu.cores for cpu in all_cpu), **worst),
        interrupted=any(result.interrupted for result in results),
        warnings=(),
        outages=tuple(_void(ordered)),
    )
    return judge_run(
        load_result(plan, clients, run),
        Evidence(
            deliveries=_deliveries(results),
            time_limited=frozenset(entity.key for entity in plan.entities if entity.is_time_limited),
            expected_errors={entity.key: frozenset(entity.expected_errors) for entity in plan.entities},
            expectations=tuple(map(parse_expectation, ordered[0].expectations)),
        ),
    )


def _check(shards: Sequence[Shard]) -> None:
    shares = [shard.plan.entities[0].share for shard in shards]
    count = shares[0].count
    missing = sorted(set(range(1, count + 1)) - {share.number for share in shares})
    if missing:
        numbers = ", ".join(f"{number}/{count}" for number in missing[:5])
        raise UsageError(f"{len(missing)} of {count} shards are missing: {numbers}", hint="name the folder of each")
    if len(shards) != count:
        twice = [number for number, times in Counter(share.number for share in shares).items() if times > 1]
        raise UsageError(f"shard {twice[0]}/{shares[-1].count} is given twice", hint="name each folder once")
    for shard in shards[1:]:
        same = _load(shard.plan) == _load(shards[0].plan) and shard.result.started_ms == shards[0].result.started_ms
        if not same or shard.expectations != shards[0].expectations:
            raise UsageError(
                f"shard {shard.plan.entities[0].share.number}/{count} is of another load than the first",
                hint="all shards have the same scenario, options, quotas in force and --start-at",
            )


def _load(plan: LoadPlan) -> LoadPlan:
    # Each shard has a prefix of its own, by which the names of its topics begin.
    entities = tuple(replace(each, share=WHOLE, topic="any", flood=None) for each in plan.entities)
    return replace(plan, run_id=0, entities=entities)


def _client(entity: ClientLoad, parts: Sequence[ClientResult], plan: LoadPlan) -> MeasuredClient:
    wire_bytes = round(sum(part.wire_ratio * part.payload_bytes for part in parts))
    recorders = [recorder_document(part.recorder) for part in parts if part.recorder is not None]
    return MeasuredClient(
        entity=entity,
        recorder=recorder_of(recorders, window_ms=plan.window_ms),
        wire=WireCount(wire_bytes=wire_bytes, payload_bytes=sum(part.payload_bytes for part in parts)),
        unfinished=sum(part.unfinished for part in parts),
        books=Books(**_sums([part.books for part in parts])),
        enforcers=parts[0].enforcers,
    )


def _void(shards: Sequence[Shard]) -> Iterator[str]:
    longest_s = max(shard.result.elapsed_s for shard in shards)
    for shard in shards:
        share, result = shard.plan.entities[0].share, shard.result
        name = f"shard {share.number}/{share.count}"
        for judgement in result.judgements:
            if judgement.aspect is Aspect.RUN and judgement.state is State.VOID:
                yield f"{name}: {judgement.evidence}"
        if (longest_s - result.elapsed_s) * 1000 > _EARLY_MS:
            yield f"{name} ended {longest_s - result.elapsed_s:.1f} s before the last one"


def _deliveries(results: Sequence[LoadResult]) -> Mapping[EntityKey, Delivery]:
    found: dict[EntityKey, Delivery] = {}
    for entity in results[0].entities:
        parts = [part.delivery for result in results for part in result.entities if part.key == entity.key]
        known = [part for part in parts if part is not None]
        if len(known) == len(parts):
            unchecked = "; ".join(dict.fromkeys(part.unchecked for part in known if part.unchecked))
            found[entity.key] = Delivery(**_sums(known), unchecked=unchecked)
    return found


def _sums(parts: Sequence[Books] | Sequence[Delivery]) -> dict[str, int]:
    counts = [each.name for each in fields(parts[0]) if each.type is int]
    return {name: sum(getattr(part, name) for part in parts) for name in counts}
