"""Merging of the shards of one load test: their measurements together, judged as those of a single run are.

The whole takes the way of every run: merged recorders become a result, and the result is judged by the thresholds and
evidence of all shards. A shard that proves nothing makes the whole void.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace

from kafka_quotas.core.errors import UsageError
from kafka_quotas.loadtest.clients.engine import WireCount
from kafka_quotas.loadtest.judgement import Aspect, State
from kafka_quotas.loadtest.measurement.delivery import Books, Delivery
from kafka_quotas.loadtest.measurement.recorder import recorder_document, recorder_of
from kafka_quotas.loadtest.plan.plan import WHOLE, ClientLoad, EntityKey, LoadPlan
from kafka_quotas.loadtest.results.result import ClientResult, CpuUse, LoadResult
from kafka_quotas.loadtest.results.run_file import Shard
from kafka_quotas.loadtest.verdict.analysis import MeasuredClient, load_result
from kafka_quotas.loadtest.verdict.judging import Evidence, judge_run
from kafka_quotas.loadtest.verdict.thresholds import parse_expectation

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
    run = replace(
        results[0],
        elapsed_s=max(result.elapsed_s for result in results),
        cpu=_busiest([result.cpu for result in results]),
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


def _busiest(all_cpu: Sequence[CpuUse]) -> CpuUse:
    return CpuUse(
        process=max(cpu.process for cpu in all_cpu),
        python=max(cpu.python for cpu in all_cpu),
        cores=min(cpu.cores for cpu in all_cpu),
        late_ms=max(cpu.late_ms for cpu in all_cpu),
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
    """Return the sums of what was read back of each client, where every shard read its own."""
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
