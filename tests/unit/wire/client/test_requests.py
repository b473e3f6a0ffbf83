"""Our own requests against kio and kafka-python: what we write they read, and what they write we read to its end."""

import dataclasses
from typing import Any

import pytest
from kafka.protocol.admin.client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader
from tests.support.frames.kio_samples import filled_response, response_frame

from kafka_quotas.core.errors import ProtocolError, UsageError
from kafka_quotas.core.model.entity import Entity, FilterComponent, Match, QuotaFilter
from kafka_quotas.wire.client.admin import (
    TOPIC,
    AlterQuotasRequest,
    DescribeConfigsRequest,
    DescribeQuotasRequest,
    EntityChanges,
    EntityOutcome,
    ListReassignmentsRequest,
    MetadataRequest,
)
from kafka_quotas.wire.client.request import (
    AuthenticateRequest,
    ClientRequest,
    HandshakeRequest,
    VersionRange,
    VersionRequest,
    read_answer,
    request_frame,
    version_of,
)
from kafka_quotas.wire.codec.fields import FieldReader
from kafka_quotas.wire.protocol.api_table import API_TABLE, error_name
from kafka_quotas.wire.protocol.header import has_header_tags

LONG = "a" * 200
PAIR = Entity.of(user="\u00e9", client_id=None)
ALTER = AlterQuotasRequest(
    entries=(
        EntityChanges(PAIR, (("producer_byte_rate", 2.5e9), ("x", None))),
        EntityChanges(Entity.of(ip="127.0.0.1"), (("a", 1.0), ("a", None))),
    ),
    validate_only=True,
)
COMPONENTS = (
    FilterComponent(entity_type="user", match=Match.EXACT, name=LONG),
    FilterComponent(entity_type="client-id", match=Match.DEFAULT),
    FilterComponent(entity_type="ip", match=Match.ANY),
)
DESCRIBE = DescribeQuotasRequest(quota_filter=QuotaFilter(components=COMPONENTS, strict=True))
REQUESTS: tuple[tuple[ClientRequest[Any], dict[str, Any]], ...] = (
    (VersionRequest(software_version="1"), {}),
    (MetadataRequest(topics=("t",)), {"topics": [{"name": "t"}], "allow_auto_topic_creation": False}),
    (MetadataRequest(), {"topics": []}),
    (MetadataRequest(topics=None), {"topics": None}),
    (
        DESCRIBE,
        {
            "components": [
                {"entity_type": "user", "match_type": 0, "match": LONG},
                {"entity_type": "client-id", "match_type": 1, "match": None},
                {"entity_type": "ip", "match_type": 2, "match": None},
            ],
            "strict": True,
        },
    ),
    (
        ALTER,
        {
            "entries": [
                {
                    "entity": [
                        {"entity_type": "user", "entity_name": "\u00e9"},
                        {"entity_type": "client-id", "entity_name": None},
                    ],
                    "ops": [
                        {"key": "producer_byte_rate", "value": 2.5e9, "remove": False},
                        {"key": "x", "value": 0.0, "remove": True},
                    ],
                },
                {
                    "entity": [{"entity_type": "ip", "entity_name": "127.0.0.1"}],
                    "ops": [{"key": "a", "value": 1.0, "remove": False}, {"key": "a", "value": 0.0, "remove": True}],
                },
            ],
            "validate_only": True,
        },
    ),
    (
        DescribeConfigsRequest(resource_type=TOPIC, resource_names=("t", "u"), config_names=("a", "b")),
        {
            "resources": [
                {"resource_type": 2, "resource_name": "t", "configuration_keys": ["a", "b"]},
                {"resource_type": 2, "resource_name": "u", "configuration_keys": ["a", "b"]},
            ],
            "include_synonyms": False,
        },
    ),
    (ListReassignmentsRequest(timeout_ms=7), {"topics": None}),
    (HandshakeRequest(mechanism="PLAIN"), {"mechanism": "PLAIN"}),
    (AuthenticateRequest(token=bytes(range(200))), {"auth_bytes": bytes(range(200))}),
)
PLACES = [
    pytest.param(request, said, version, id=f"{request.name}-{request.api_key}-v{version}")
    for request, said in REQUESTS
    for version in range(request.versions.lowest, request.versions.highest + 1)
]
ANSWERED = [
    pytest.param(kind, version, id=f"{kind.name}-v{version}")
    for kind in {type(request): request for request, _ in REQUESTS}.values()
    for version in range(kind.versions.lowest, kind.versions.highest + 1)
    if not isinstance(kind, DescribeQuotasRequest | AlterQuotasRequest)  # their entity types are ours to refuse
]


@pytest.mark.parametrize(("request_", "said", "version"), PLACES)
def test_kio_reads_what_was_meant(request_: ClientRequest[Any], said: dict[str, Any], version: int) -> None:
    frame = request_frame(request_, version, correlation_id=77, client_id="me")
    schema = load_request_schema(request_.api_key, version)
    header, size = entity_reader(schema.__header_schema__)(frame, 4)
    assert (header.request_api_key, header.request_api_version) == (request_.api_key, version)
    assert (header.correlation_id, header.client_id) == (77, "me")
    body, body_size = entity_reader(schema)(frame, 4 + size)
    assert 4 + size + body_size == len(frame) == 4 + int.from_bytes(frame[:4], "big")
    _agrees(body, said)


def _agrees(theirs: Any, ours: Any) -> None:
    if isinstance(ours, dict):
        for name, value in ours.items():
            _agrees(getattr(theirs, name), value)
    elif isinstance(ours, list):
        assert len(theirs) == len(ours)
        for one, other in zip(theirs, ours, strict=True):
            _agrees(one, other)
    else:
        assert theirs == ours


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    ("request_", "kind"), [(DESCRIBE, DescribeClientQuotasRequest), (ALTER, AlterClientQuotasRequest)]
)
def test_kafka_python_writes_the_same_bytes(request_: ClientRequest[Any], kind: Any, version: int) -> None:
    said = next(said for request, said in REQUESTS if request is request_)
    frame = request_frame(request_, version, correlation_id=7, client_id="me")
    assert frame.endswith(bytes(_theirs(kind, said).encode(version=version)))


def _theirs(kind: Any, said: dict[str, Any]) -> Any:
    """The message of kafka-python with these fields.

    The kinds of its parts are attributes of it.
    """
    parts = {"components": "ComponentData", "entries": "EntryData", "entity": "EntityData", "ops": "OpData"}
    return kind(**{
        name: [_theirs(getattr(kind, parts[name]), each) for each in value] if name in parts else value
        for name, value in said.items()
    })  # fmt: skip


@pytest.mark.parametrize(("request_", "version"), ANSWERED)
def test_a_filled_answer_of_kio_is_read_to_its_end(request_: ClientRequest[Any], version: int) -> None:
    theirs = filled_response(request_.api_key, version)
    if isinstance(request_, VersionRequest):
        theirs = dataclasses.replace(theirs, error_code=ErrorCode.none)
    content = response_frame(theirs, correlation_id=77)[4:]
    start = 4 + has_header_tags(request_.api_key, version)
    is_flexible = API_TABLE[request_.api_key].is_flexible(version)
    reader = FieldReader(content, offset=start, flexible=is_flexible)
    answer = request_.read(reader, version)
    assert reader.left == 0
    assert answer == read_answer(request_, version, content, correlation_id=77)
    _same_content(answer, theirs)
    for end in range(start, len(content), 1 + len(content) // 50):
        with pytest.raises(ProtocolError):
            request_.read(FieldReader(content[:end], offset=start, flexible=is_flexible), version)


def _same_content(answer: Any, theirs: Any) -> None:
    """Checks what of an answer we use against what kio had put in."""
    if hasattr(theirs, "brokers"):
        assert [(each.node_id, each.host, each.port) for each in answer.brokers] == [
            (each.node_id, each.host, each.port) for each in theirs.brokers
        ]
        assert answer.controller_id == theirs.controller_id
        assert [
            (topic.name, topic.error_code, [(part.number, part.leader_id) for part in topic.partitions])
            for topic in answer.topics
        ] == [
            (topic.name, topic.error_code.value, [(part.partition_index, part.leader_id) for part in topic.partitions])
            for topic in theirs.topics
        ]
    elif hasattr(theirs, "results"):
        assert [
            (each.error_code, each.error_message, each.resource_name, list(each.configs.items())) for each in answer
        ] == [
            (each.error_code.value, each.error_message, each.resource_name, [(c.name, c.value) for c in each.configs])
            for each in theirs.results
        ]
    elif hasattr(theirs, "topics"):
        assert answer.topics == tuple(topic.name for topic in theirs.topics)
        assert (answer.error_code, answer.error_message) == (theirs.error_code.value, theirs.error_message)
    elif hasattr(theirs, "mechanisms"):
        assert (answer.error_code, answer.offered) == (theirs.error_code.value, tuple(theirs.mechanisms))
    elif hasattr(theirs, "auth_bytes"):
        assert (answer.error_code, answer.error_message) == (theirs.error_code.value, theirs.error_message)
        assert answer.token == theirs.auth_bytes
    else:
        assert answer.ranges == {each.api_key: (each.min_version, each.max_version) for each in theirs.api_keys}


@pytest.mark.parametrize("version", [0, 1])
def test_described_quotas_of_kafka_python_are_read(version: int) -> None:
    kind = DescribeClientQuotasResponse
    entry = kind.EntryData
    theirs = kind(
        throttle_time_ms=3,
        error_code=0,
        error_message=None,
        entries=[
            entry(
                entity=[
                    entry.EntityData(entity_type="client-id", entity_name=None),
                    entry.EntityData(entity_type="user", entity_name="\u00e9"),
                ],
                values=[entry.ValueData(key="k", value=1.5), entry.ValueData(key="l", value=float("inf"))],
            )
        ],
    )
    answer = read_answer(DESCRIBE, version, _content(theirs, version), correlation_id=9)
    assert answer.entries == ((PAIR, {"k": 1.5, "l": float("inf")}),)
    assert (answer.error_code, answer.error_message) == (0, None)


@pytest.mark.parametrize("version", [0, 1])
def test_outcomes_of_kafka_python_are_read(version: int) -> None:
    kind = AlterClientQuotasResponse
    entry = kind.EntryData
    theirs = kind(
        throttle_time_ms=3,
        entries=[
            entry(
                error_code=42,
                error_message="no",
                entity=[entry.EntityData(entity_type="ip", entity_name="127.0.0.1")],
            )
        ],
    )
    answer = read_answer(ALTER, version, _content(theirs, version), correlation_id=9)
    assert answer == (EntityOutcome(Entity.of(ip="127.0.0.1"), 42, "no"),)


def _content(theirs: Any, version: int) -> bytes:
    return (9).to_bytes(4, "big") + (b"\0" if version else b"") + bytes(theirs.encode(version=version))


def test_an_answer_to_another_request_is_refused() -> None:
    with pytest.raises(ProtocolError, match="another request"):
        read_answer(DESCRIBE, 0, bytes(40), correlation_id=9)


def test_an_unsupported_version_is_read_without_the_rest() -> None:
    content = (9).to_bytes(4, "big") + ErrorCode.unsupported_version.value.to_bytes(2, "big")
    assert read_answer(VersionRequest(), 3, content, correlation_id=9).error_code == ErrorCode.unsupported_version.value


@pytest.mark.parametrize(
    ("offered", "version"),
    [(None, None), ((0, 0), 0), ((0, 1), 1), ((0, 9), 1), ((1, 9), 1), ((2, 9), None)],
)
def test_the_highest_version_of_both_is_used(offered: tuple[int, int] | None, version: int | None) -> None:
    ranges = {} if offered is None else {DESCRIBE.api_key: VersionRange(*offered)}
    assert version_of(DESCRIBE, ranges) == version


def test_requests_agree_with_the_table_of_all_apis() -> None:
    for request, _ in REQUESTS:
        api = API_TABLE[request.api_key]
        assert request.name in (api.name, "quota")
        assert all(api.handles(version) for version in request.versions)


@pytest.mark.parametrize(
    ("name", "problem"), [("caf\udce9", "not a text that Kafka can hold"), ("a" * 32768, "longer than 32767 bytes")]
)
def test_a_name_that_kafka_can_not_hold_is_refused(name: str, problem: str) -> None:
    request = AlterQuotasRequest(entries=(EntityChanges(Entity.of(user=name), ()),), validate_only=False)
    with pytest.raises(UsageError, match=problem):
        request_frame(request, 1, correlation_id=1, client_id="me")


def test_a_false_count_of_elements_makes_nothing_of_that_size() -> None:
    content = (9).to_bytes(4, "big") + bytes(6) + b"\xff\xff" + (2**31 - 1).to_bytes(4, "big")
    with pytest.raises(ProtocolError):
        read_answer(DESCRIBE, 0, content, correlation_id=9)


def test_error_codes_have_kafkas_names() -> None:
    for code in ErrorCode:
        assert error_name(code.value) == code.name.upper()
    assert error_name(9999) == "error 9999"
