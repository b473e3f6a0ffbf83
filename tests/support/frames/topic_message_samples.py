"""Requests about topics as kafka-python and kio make them, for the tests of the codecs."""

import itertools
from types import ModuleType
from typing import Any

from kafka.protocol import admin, metadata, producer
from kio.static.constants import EntityType
from tests.support.frames import kafka_python_samples, kio_samples

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.wire.protocol.header import parse_request_header

CORRELATION_ID = 77
MESSAGE = "controller_mutation_rate of user alice: wait 950 ms"
REQUESTS: dict[int, tuple[ModuleType, str]] = {
    ApiKey.PRODUCE: (producer, "ProduceRequest"),
    ApiKey.METADATA: (metadata, "MetadataRequest"),
    ApiKey.CREATE_TOPICS: (admin, "CreateTopicsRequest"),
    ApiKey.DELETE_TOPICS: (admin, "DeleteTopicsRequest"),
    ApiKey.CREATE_PARTITIONS: (admin, "CreatePartitionsRequest"),
}
MUTATIONS = (ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS)


def request_class(api_key: int) -> Any:
    module, name = REQUESTS[api_key]
    return getattr(module, name)


def python_versions(*api_keys: int) -> list[tuple[int, int]]:
    return [(key, version) for key in api_keys for version in range(request_class(key).max_version + 1)]


def kio_versions(kind: EntityType, *api_keys: int) -> list[tuple[int, int]]:
    return [pair for pair in kio_samples.versions_of(kind) if pair[0] in api_keys]


def python_request(api_key: int, version: int) -> Any:
    """A request with every field filled, three elements to a list."""
    cls = request_class(api_key)
    return kafka_python_samples._filled(cls._struct, cls[version], version, itertools.count(1))


def encoded(message: Any, *, client_id: str | None = None) -> bytes:
    message.with_header(correlation_id=CORRELATION_ID, **({} if client_id is None else {"client_id": client_id}))
    return bytes(message.encode(header=True, framed=True))


def header_of(frame: bytes) -> Any:
    header = parse_request_header(frame)
    assert header is not None
    return header
