"""Properties of the quota messages: kafka-python reads back every text and number, and rubbish raises one error."""

import math
from contextlib import suppress
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.admin.client_quotas import AlterClientQuotasRequest, DescribeClientQuotasResponse

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.model.entity import ENTITY_TYPES, EVERYTHING, Entity
from kafka_quotas.wire.client.admin import AlterQuotasRequest, DescribeQuotasRequest, EntityChanges
from kafka_quotas.wire.client.request import read_answer
from kafka_quotas.wire.codec.fields import FieldWriter

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
entities = st.dictionaries(st.sampled_from(ENTITY_TYPES), st.none() | texts, min_size=1).map(Entity.from_mapping)
values = st.floats(allow_nan=False)
changes = st.lists(st.tuples(texts, st.none() | values), max_size=4)
versions = st.sampled_from([0, 1])


@given(wanted=st.lists(st.tuples(entities, changes), max_size=4), version=versions)
def test_what_we_write_is_what_kafka_python_reads(wanted: list[tuple[Entity, list[Any]]], version: int) -> None:
    entries = tuple(EntityChanges(entity, tuple(pairs)) for entity, pairs in wanted)
    writer = FieldWriter(flexible=version == 1)
    AlterQuotasRequest(entries=entries, validate_only=False).write(writer, version)
    read = AlterClientQuotasRequest.decode(writer.content(), version=version)
    assert read.validate_only is False
    assert [
        (
            tuple((part.entity_type, part.entity_name) for part in entry.entity),
            tuple((op.key, None if op.remove else op.value) for op in entry.ops),
        )
        for entry in read.entries
    ] == [(entry.entity.parts, entry.changes) for entry in entries]


@given(stored=st.dictionaries(entities, st.dictionaries(texts, st.floats(), max_size=4), max_size=4), version=versions)
def test_what_kafka_python_writes_is_what_we_read(stored: dict[Entity, dict[str, float]], version: int) -> None:
    kind = DescribeClientQuotasResponse.EntryData
    entries = [
        kind(
            entity=[kind.EntityData(entity_type=type_, entity_name=name) for type_, name in entity.parts],
            values=[kind.ValueData(key=key, value=value) for key, value in quotas.items()],
        )
        for entity, quotas in stored.items()
    ]
    theirs = DescribeClientQuotasResponse(throttle_time_ms=0, error_code=0, error_message=None, entries=entries)
    content = bytes(4) + bytes(version) + bytes(theirs.encode(version=version))
    found = read_answer(DescribeQuotasRequest(quota_filter=EVERYTHING), version, content, correlation_id=0)
    assert [entity for entity, _ in found.entries] == list(stored)
    for (_, quotas), wanted in zip(found.entries, stored.values(), strict=True):
        assert list(quotas) == list(wanted)
        assert all(_same(quotas[key], value) for key, value in wanted.items())


def _same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))


@given(rubbish=st.binary(max_size=200), version=versions)
def test_rubbish_raises_nothing_but_errors_of_ours(rubbish: bytes, version: int) -> None:
    for request in (
        DescribeQuotasRequest(quota_filter=EVERYTHING),
        AlterQuotasRequest(entries=(), validate_only=False),
    ):
        with suppress(KafkaQuotasError):  # any other exception fails the test
            read_answer(request, version, bytes(4) + rubbish, correlation_id=0)
