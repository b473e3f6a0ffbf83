"""Shards and their whole: what was recorded in parts is exactly what one process would have recorded."""

import gzip
import json
from collections.abc import Sequence
from dataclasses import fields, replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.load.recordings import MS, RecordedClient, plan_of, recorded, run_of

from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.loadtest.judgement import State
from kafka_quotas.loadtest.measurement.delivery import Books, Delivery
from kafka_quotas.loadtest.measurement.recorder import Recorder, RecorderRoom
from kafka_quotas.loadtest.plan.plan import LoadShare
from kafka_quotas.loadtest.results.run_file import SHARD_FILE, Shard, read_shard, run_document, write_shard
from kafka_quotas.loadtest.verdict.analysis import merge_shards

EVENT = st.tuples(
    st.integers(0, 19_000), st.integers(0, 900), st.integers(1, 5), st.sampled_from((0, 0, 30, 700)), st.integers(0, 3)
)
"""When (ms), response time (ms), records, throttle time (ms), and the shard."""


def record(recorder: Recorder, event: tuple[int, int, int, int, int]) -> None:
    at_ms, response_ms, records, throttle_ms, _ = event
    at_ns = at_ms * MS
    recorder.sent += records
    recorder.latency(intended_ns=0, sent_ns=at_ns, acked_ns=at_ns + response_ms * MS, count=records)
    recorder.acknowledged(at_ns, records=records, size=100 * records)
    recorder.response(at_ns, charged=110 * records, throttle_ms=throttle_ms)


def recorded_of(events: Sequence[tuple[int, int, int, int, int]], room: RecorderRoom | None = None) -> RecordedClient:
    client = recorded("app", quota=50_000, rate=Fraction(400))
    if room is not None:
        client.recorder = Recorder(start_ns=0, measure_from_ns=0, window_ms=3000, room=room)
    for event in sorted(events, key=lambda event: (event[0], event[-1])):
        record(client.recorder, event)
    return client


def shards_of(clients: Sequence[RecordedClient], elapsed_s: float = 20.0) -> list[Shard]:
    shards = []
    for number, client in enumerate(clients, start=1):
        client.entity = replace(client.entity, share=LoadShare(number=number, count=len(clients)))
        shards.append(Shard(plan=plan_of(client), result=run_of(client, elapsed_s=elapsed_s)))
    return shards


@settings(deadline=None, max_examples=40)
@given(events=st.lists(EVENT, max_size=80))
def test_the_whole_is_what_one_process_would_have_recorded(events: list[tuple[int, int, int, int, int]]) -> None:
    parts = [recorded_of([event for event in events if event[-1] == shard]) for shard in range(4)]
    one = run_document(run_of(recorded_of(events)))

    merged = run_document(merge_shards(shards_of(parts)[::-1]))

    assert merged["entities"] == one["entities"]
    assert merged["judgements"] == one["judgements"]


def test_every_count_of_the_whole_is_the_sum_of_its_shards() -> None:
    shards = []
    for number, shard in enumerate(shards_of([recorded_of([]) for _ in range(3)]), start=1):
        (entity,) = shard.result.entities
        counts = {each.name: number * 10**at for at, each in enumerate(fields(Delivery)) if each.type is int}
        books = {each.name: number * 10**at for at, each in enumerate(fields(Books))}
        entity = replace(entity, delivery=Delivery(**counts), books=Books(**books))
        shards.append(replace(shard, result=replace(shard.result, entities=(entity,))))

    (whole,) = merge_shards(shards).entities

    parts = [shard.result.entities[0] for shard in shards]
    for name in (each.name for each in fields(Books)):
        assert getattr(whole.books, name) == sum(getattr(part.books, name) for part in parts) > 0
    for name in ("acked", "found", "lost", "duplicated", "missing"):
        assert getattr(whole.delivery, name) == sum(getattr(part.delivery, name) for part in parts) > 0


def test_a_shard_survives_its_file(tmp_path: Path) -> None:
    events = [(at, 3, 2, 40 if at % 7 == 0 else 0, 0) for at in range(0, 19_000, 13)]
    (shard,) = shards_of([recorded_of(events)])
    quotas = (("producer_byte_rate", 200_000.0), ("request_percentage", 1.0))
    load = replace(shard.plan.entities[0], quotas=quotas, arrivals_per_second=Fraction(1, 3))
    plan = replace(shard.plan, properties=(("sasl.password", "hidden"),), entities=(load,))
    shard = replace(shard, plan=plan, expectations=("quota > 1",))
    write_shard(shard, tmp_path / SHARD_FILE)

    read = read_shard(tmp_path)

    assert read.plan == replace(shard.plan, properties=())
    assert "hidden" not in gzip.decompress((tmp_path / SHARD_FILE).read_bytes()).decode()
    assert run_document(merge_shards([read])) == run_document(merge_shards([shard]))
    assert [each.evidence for each in merge_shards([read]).judgements][-1].startswith("quota > 1")


def test_coarse_traces_keep_their_sums_and_full_ones_end_the_whole() -> None:
    events = [(at, 3, 2, 0, 0) for at in range(0, 19_000, 5)]
    roomy, tight = recorded_of(events), recorded_of(events, RecorderRoom(entries=50, responses=100, slots=5))

    (entity,) = merge_shards(shards_of([roomy, tight])).entities

    recorder = entity.recorder
    assert recorder is not None
    assert sum(size for _, size in recorder.trace.entries()) == entity.payload_bytes == 2 * 2 * 100 * len(events)
    assert recorder.trace.resolution_ms == tight.recorder.trace.resolution_ms > 1
    assert {each.t_ms for each in recorder.responses} == {at for at, *_ in events[:100]}
    assert sum(slot.records for slot in recorder.timeline.slots()) == entity.acked


def test_shards_that_are_no_whole_are_refused() -> None:
    first, second, third = shards_of([recorded_of([]) for _ in range(3)])
    other = replace(third, plan=replace(third.plan, duration_s=99.0))

    for given_, message in (
        ([first, third], "1 of 3 shards are missing: 2/3"),
        ([first, second, third, second], "shard 2/3 is given twice"),
        ([first, second, other], "shard 3/3 is of another load than the first"),
    ):
        with pytest.raises(UsageError, match=message):
            merge_shards(given_)


def test_a_shard_that_ended_early_makes_the_whole_void() -> None:
    clients = [recorded_of([(at, 3, 2, 0, 0) for at in range(0, 19_000, 50)]) for _ in range(2)]
    whole, cut = shards_of(clients)[0], shards_of(clients, elapsed_s=12.0)[1]

    merged = merge_shards([whole, cut])

    assert merged.state is State.VOID
    assert merged.outages == ("shard 2/2 ended 8.0 s before the last one",)


@pytest.mark.parametrize(
    "content",
    [b"no gzip", gzip.compress(b"{"), gzip.compress(b"[]"), gzip.compress(b'{"a": 1}')],
    ids=["rubbish", "cut", "list", "other"],  # a compressed text has the time in it, and each process its own
)
def test_a_file_that_is_no_shard_is_named(content: bytes, tmp_path: Path) -> None:
    (tmp_path / SHARD_FILE).write_bytes(content)
    with pytest.raises(KafkaQuotasError, match=SHARD_FILE):
        read_shard(tmp_path)

    plain = {"schema": "kafka-quotas.load-shard/1", "plan": {"bootstrap": 3}, "run": {}, "recorders": []}
    (tmp_path / SHARD_FILE).write_bytes(gzip.compress(json.dumps(plain).encode()))
    with pytest.raises(KafkaQuotasError, match="not a shard of a load test"):
        read_shard(tmp_path)
    with pytest.raises(UsageError):
        read_shard(tmp_path / "nowhere")
