"""The sizes that the request log does not tell, against messages that another implementation has written."""

import datetime as dt
import io
import uuid
from types import ModuleType
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v11 import response as fetch11
from kio.schema.fetch.v16 import response as fetch16
from kio.schema.produce.v8 import request as produce8
from kio.schema.produce.v9 import request as produce9
from kio.schema.share_fetch.v2 import response as share2
from kio.serial import entity_writer

from kafka_quotas.pipeline.formats.request_log import (
    fetch_response_bytes,
    produce_request_bytes,
    share_fetch_response_bytes,
)

RECORDS = (0, 100, 200, 70_000)


@pytest.mark.parametrize("name", ["events", "t" * 130])
@pytest.mark.parametrize(("version", "schema"), [(8, produce8), (9, produce9)])
def test_a_produce_request(version: int, schema: ModuleType, name: str) -> None:
    partitions = tuple(schema.PartitionProduceData(index=n, records=bytes(size)) for n, size in enumerate(RECORDS))
    request = schema.ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout=dt.timedelta(seconds=30),
        topic_data=(schema.TopicProduceData(name=name, partition_data=partitions),),
    )
    logged = {
        "transactionalId": None,
        "topicData": [
            {
                "name": name,
                "partitionData": [{"index": n, "recordsSizeInBytes": size} for n, size in enumerate(RECORDS)],
            }
        ],
    }
    header = 10 + len("app") + (version >= 9)  # the tagged fields of a flexible header
    assert produce_request_bytes(logged, version=version, client_id="app") == _size(request) + header


@pytest.mark.parametrize("aborted", [0, 2])
@pytest.mark.parametrize(("version", "schema"), [(11, fetch11), (16, fetch16)])
def test_a_fetch_response(version: int, schema: ModuleType, aborted: int) -> None:
    transactions = tuple(schema.AbortedTransaction(producer_id=1, first_offset=2) for _ in range(aborted))
    partitions = tuple(
        schema.PartitionData(
            partition_index=n,
            error_code=ErrorCode.none,
            high_watermark=9,
            last_stable_offset=9,
            log_start_offset=0,
            aborted_transactions=transactions,
            preferred_read_replica=-1,
            records=bytes(size),
        )
        for n, size in enumerate(RECORDS)
    )
    names: dict[str, Any] = {"topic": "events"} if version == 11 else {"topic_id": uuid.UUID(int=7)}
    response = schema.FetchResponse(
        throttle_time=dt.timedelta(0),
        error_code=ErrorCode.none,
        session_id=0,
        responses=(schema.FetchableTopicResponse(**names, partitions=partitions),),
    )
    logged = {
        "throttleTimeMs": 0,
        "responses": [
            {
                "topic": "events",
                "partitions": [{"recordsSizeInBytes": size, "abortedTransactions": [{}] * aborted} for size in RECORDS],
            }
        ],
    }
    assert fetch_response_bytes(logged, version=version) == 4 + _size(response)  # brokers add the size of the size


@pytest.mark.parametrize("acquired", [0, 2, 200])
def test_a_share_fetch_response(acquired: int) -> None:
    ranges = tuple(share2.AcquiredRecords(first_offset=1, last_offset=2, delivery_count=1) for _ in range(acquired))
    partitions = tuple(
        share2.PartitionData(
            partition_index=n,
            error_code=ErrorCode.none,
            error_message="what went wrong" if n else None,
            acknowledge_error_code=ErrorCode.none,
            acknowledge_error_message=None,
            current_leader=share2.LeaderIdAndEpoch(leader_id=1, leader_epoch=2),
            records=bytes(size),
            acquired_records=ranges,
        )
        for n, size in enumerate(RECORDS)
    )
    response = share2.ShareFetchResponse(
        throttle_time=dt.timedelta(0),
        error_code=ErrorCode.none,
        error_message=None,
        acquisition_lock_timeout=dt.timedelta(seconds=30),
        responses=(share2.ShareFetchableTopicResponse(topic_id=uuid.UUID(int=7), partitions=partitions),),
        node_endpoints=(),
    )
    logged = {
        "throttleTimeMs": 0,
        "errorCode": 0,
        "responses": [
            {
                "partitions": [
                    {
                        "recordsSizeInBytes": size,
                        "errorMessage": "what went wrong" if n else None,
                        "acknowledgeErrorMessage": None,
                        "acquiredRecords": [{}] * acquired,
                    }
                    for n, size in enumerate(RECORDS)
                ]
            }
        ],
    }
    assert share_fetch_response_bytes(logged) == 4 + _size(response)
    assert share_fetch_response_bytes({**logged, "throttleTimeMs": 7}) == 0
    assert share_fetch_response_bytes({**logged, "errorCode": 122}) == 0


def _size(message: Any) -> int:
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    return len(buffer.getvalue())
