"""Every line of zk_layout.jsonl: what one alteration writes into an empty tree."""

import json

import pytest
from tests.conformance.lines import Line, entity_of

from kafka_quotas.core.formats.zookeeper import (
    CHANGE_PREFIX,
    change_notification,
    encode_config,
    entity_of_path,
    format_value,
    parent_paths,
    znode_path,
)


@pytest.mark.conformance("zk_layout.jsonl")
def test_layout(line: Line) -> None:
    entity = entity_of(line["entity"])
    config = {key: format_value(key, value) for key, value in line["quotas"].items()}
    assert znode_path(entity) == line["path"]
    assert entity_of_path(line["path"]) == entity
    assert json.loads(encode_config(config)) == line["payload"]
    assert list(parent_paths(entity)) == line["created_empty"]
    assert line["notification_prefix"] == CHANGE_PREFIX
    assert json.loads(change_notification(entity)) == line["notification"]
    assert change_notification(entity).decode() == line["notification_text"]
