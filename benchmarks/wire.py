"""CPU microseconds per operation of the wire layer. Run: `python benchmarks/wire.py`.

Prints the best and the median of several rounds. The aim is at most 50 us for a Metadata response of 1,000 partitions
and 12 brokers, and single microseconds for what is done to every request and response.
"""

import statistics
import struct
import time
import timeit
from collections.abc import Callable

from kafka_quotas.wire.codec.skip import encode_unsigned_varint
from kafka_quotas.wire.protocol.header import parse_request_header, parse_response_head
from kafka_quotas.wire.proxying.api_versions import clamp
from kafka_quotas.wire.proxying.broker_addresses import rewrite_addresses
from kafka_quotas.wire.proxying.fetch_request import fetch_limits
from kafka_quotas.wire.proxying.produce import acks
from kafka_quotas.wire.proxying.throttle_time import patch_throttle

BROKERS, TOPICS, PARTITIONS_PER_TOPIC = 12, 20, 50
ROUNDS = 9
CLIENT_ID = b"billing-service-7"


def framed(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


def compact(text: bytes) -> bytes:
    return encode_unsigned_varint(len(text) + 1) + text


def request(api_key: int, version: int, body: bytes) -> bytes:
    return framed(struct.pack(">hhih", api_key, version, 7, len(CLIENT_ID)) + CLIENT_ID + b"\0" + body)


def metadata_response() -> bytes:
    """Return a response of version 12: 12 brokers with racks, 20 topics of 50 partitions with 3 replicas."""
    brokers = b"".join(
        struct.pack(">i", node)
        + compact(b"broker-%d.kafka.example.org" % node)
        + struct.pack(">i", 9092)
        + b"\7rack-a\0"
        for node in range(BROKERS)
    )
    replicas = b"\4" + struct.pack(">iii", 1, 2, 3)
    partitions = b"".join(
        struct.pack(">hiii", 0, index, 1, 5) + replicas + replicas + b"\1\0" for index in range(PARTITIONS_PER_TOPIC)
    )
    topics = b"".join(
        bytes(2)
        + compact(b"topic-%d" % index)
        + bytes(17)
        + encode_unsigned_varint(PARTITIONS_PER_TOPIC + 1)
        + partitions
        + bytes(5)
        for index in range(TOPICS)
    )
    head = struct.pack(">i", 7) + b"\0" + bytes(4) + encode_unsigned_varint(BROKERS + 1)
    tail = compact(b"cluster-id") + struct.pack(">i", 1) + encode_unsigned_varint(TOPICS + 1) + topics + b"\0"
    return framed(head + brokers + tail)


def produce_response(topics: int, partitions: int) -> bytes:
    """Return a response of version 9."""
    partition = struct.pack(">ihqqq", 0, 0, 4711, -1, 0) + b"\1\0\0"
    topic = compact(b"orders") + encode_unsigned_varint(partitions + 1) + partition * partitions + b"\0"
    return framed(bytes(5) + encode_unsigned_varint(topics + 1) + topic * topics + bytes(5))


def api_versions_response(apis: int) -> bytes:
    ranges = b"".join(struct.pack(">hhh", key, 0, 18) + b"\0" for key in range(apis))
    return framed(bytes(6) + encode_unsigned_varint(apis + 1) + ranges + bytes(5))


def moved(node_id: int, _host: str, _port: int) -> tuple[str, int]:
    return "127.0.0.1", 19_092 + node_id


def report(name: str, operation: Callable[[], object]) -> None:
    timer = timeit.Timer(operation, timer=time.process_time)
    number = max(1, timer.autorange()[0] // 4)
    rounds = sorted(seconds / number * 1e6 for seconds in timer.repeat(ROUNDS, number))
    print(f"{name:58} best {rounds[0]:8.2f} us   median {statistics.median(rounds):8.2f} us")


def main() -> None:
    produce = request(0, 9, b"\0" + struct.pack(">hi", -1, 1500) + bytes(1000))
    fetch = bytearray(request(1, 12, struct.pack(">iiii", -1, 500, 1, 52_428_800) + bytes(40)))
    fetch_response = bytearray(framed(bytes(30)))
    small, large = bytearray(produce_response(1, 1)), bytearray(produce_response(10, 10))
    metadata, versions = metadata_response(), api_versions_response(80)
    produce_header, fetch_header = parse_request_header(produce), parse_request_header(fetch)
    if produce_header is None or fetch_header is None:
        raise SystemExit("the headers of the sample requests are incomplete")
    report("request header (flexible, client id of 17 bytes)", lambda: parse_request_header(produce))
    report("response head", lambda: parse_response_head(fetch_response))
    report("acks of a Produce v9", lambda: acks(produce, produce_header))
    report("cap of a Fetch v12", lambda: (found := fetch_limits(fetch, fetch_header)) and found.lowered(20_000_000))
    report("throttle patch, Fetch v12", lambda: patch_throttle(fetch_response, 1, 12, 250))
    report("throttle patch, Produce v9, 1 partition", lambda: patch_throttle(small, 0, 9, 250))
    report("throttle patch, Produce v9, 100 partitions", lambda: patch_throttle(large, 0, 9, 250))
    size = f"{len(metadata) / 1000:.1f} kB"
    report(f"Metadata v12, 12 brokers, 1,000 partitions, {size}", lambda: rewrite_addresses(3, 12, metadata, moved))
    report("ApiVersions v3 of 80 APIs: clamp", lambda: clamp(versions, 3))


if __name__ == "__main__":
    main()
