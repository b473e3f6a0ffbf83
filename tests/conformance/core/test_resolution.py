"""Every line of resolution.jsonl: which entity, limit and bucket apply, and who shares it."""

from typing import Any

import pytest
from tests.conformance.lines import Line, entity_of, figure, number

from kafka_quotas.core.model.entity import ABSENT
from kafka_quotas.core.model.quota_key import QUOTA_KEYS
from kafka_quotas.core.resolution.quota_resolver import IpQuotaResolver, QuotaResolver, bucket_tags, canonical_address

Answer = dict[str, Any]


@pytest.mark.conformance("resolution.jsonl")
def test_resolution(line: Line) -> None:
    by_key = {name: QuotaResolver() for name, key in QUOTA_KEYS.items() if not key.for_ip}
    by_address = IpQuotaResolver()
    for stored in line["stored"]:
        entity = entity_of(stored["entity"])
        for name, value in stored["quotas"].items():
            resolver = by_address if entity.ip is not ABSENT else by_key[name]
            resolver.update(entity, number(value))
    answers = [
        _of_address(by_address, query["ip"]) if "ip" in query else _of_client(by_key[query["key"]], query)
        for query in line["queries"]
    ]
    assert answers == [_canonical(expected) for expected in line["expect"]]
    assert _groups(line["queries"], answers) == line["shared"]


def _of_client(resolver: QuotaResolver, query: dict[str, str]) -> Answer:
    if not resolver.enabled:
        return _answer(None, None)
    bucket = resolver.bucket(query["user"], query["client-id"])
    return _answer(resolver.match(bucket), bucket_tags(bucket))


def _of_address(resolver: IpQuotaResolver, ip: str) -> Answer:
    match = resolver.match(ip)
    return _answer(match, None if match is None else resolver.bucket(ip))


def _answer(match: Any, bucket: tuple[str, str] | None) -> Answer:
    return {
        "entity": match and match.entity.to_mapping(),
        "limit": match and figure(match.limit),
        "level": match and match.level,
        "bucket": None if bucket is None else list(bucket),
    }


def _canonical(expected: Answer) -> Answer:
    """The expected answer with its address, if any, in one spelling."""
    bucket = expected["bucket"]
    if bucket is not None and expected["level"] in ("ip", "ip-default"):
        bucket = ["ip", canonical_address(bucket[1])]
    return {**expected, "bucket": bucket}


def _groups(queries: list[dict[str, str]], answers: list[Answer]) -> list[list[int]]:
    """The queries that draw on one bucket of one quota key, as far as they are more than one."""
    found: dict[tuple[str, ...], list[int]] = {}
    for index, (query, answer) in enumerate(zip(queries, answers, strict=True)):
        if answer["bucket"] is not None:
            found.setdefault((query["key"], *answer["bucket"]), []).append(index)
    return sorted(group for group in found.values() if len(group) > 1)
