"""The two requests that are enough to learn what a broker speaks and which brokers there are.

Both are of a version that every broker since 0.10 understands and every Kafka 4 broker still serves.

**Source:** KIP-35; `ApiVersionsRequest` version 0 and `MetadataRequest` version 1, Kafka 4.1.
"""

from struct import Struct
from typing import Final

from kafka_quotas.wire.api_versions import API_VERSIONS
from kafka_quotas.wire.whole_frame import framed

METADATA: Final = 3
API_VERSIONS_PROBE_VERSION: Final = 0
METADATA_PROBE_VERSION: Final = 1

_HEADER: Final = Struct(">hhih")
_NO_TOPICS: Final = bytes(4)


def api_versions_request(correlation_id: int, client_id: str) -> bytes:
    """Return the frame that asks a broker which versions it serves; the answer is of version 0."""
    return framed(_header(API_VERSIONS, API_VERSIONS_PROBE_VERSION, correlation_id, client_id))


def brokers_request(correlation_id: int, client_id: str) -> bytes:
    """Return the frame of a Metadata request for no topics: the brokers and nothing else; answered in version 1."""
    return framed(_header(METADATA, METADATA_PROBE_VERSION, correlation_id, client_id) + _NO_TOPICS)


def _header(api_key: int, api_version: int, correlation_id: int, client_id: str) -> bytes:
    text = client_id.encode()
    return _HEADER.pack(api_key, api_version, correlation_id, len(text)) + text
