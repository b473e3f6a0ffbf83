"""Every line of zk_decode.jsonl: what a znode's data means."""

import pytest
from tests.conformance.lines import Line

from kafka_quotas.core.errors import StoreError
from kafka_quotas.core.formats.zookeeper import decode_config


@pytest.mark.conformance("zk_decode.jsonl")
def test_decode(line: Line) -> None:
    data = None if line["data"] is None else line["data"].encode()
    expect = line["expect"]
    if "error" in expect:
        with pytest.raises(StoreError) as raised:
            decode_config(data)
        assert str(raised.value) == expect["message"]
    else:
        assert decode_config(data) == expect["config"]
