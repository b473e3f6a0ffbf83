"""What a Fetch response is charged with.

**Source:** `FetchResponse.sizeOf` and `KafkaApis.processResponseCallback`, Kafka 4.1: the size of the body plus four
bytes, which is the frame's length but for the header's tag section that came with version 12.
"""

from kafka_quotas.wire.fetch_request import FETCH
from kafka_quotas.wire.response_header import has_header_tags


def charged_bytes(api_version: int, frame_length: int) -> int:
    """Return the bytes that a response counts for the fetch quota; `frame_length` is the value of its length field."""
    return frame_length - 1 if has_header_tags(FETCH, api_version) else frame_length
