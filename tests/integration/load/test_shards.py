"""Four processes that share a load, against one that has all of it: the real broker `kafka4`."""

import json
import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.support.brokers.appended_records import make_topic
from tests.support.brokers.servers import Kafka
from tests.support.processes.run_cli import run_cli

AHEAD_S = 12
QUOTA = 200_000
PARTS = [f"part-{number}" for number in (3, 1, 4, 2)]
SUMS = {
    "records": ("sent",),
    "books": ("due", "acknowledged", "doubtful"),
    "delivery": ("acked", "found", "missing"),
}
"""Counts of a merged run that are the sums of its shards' counts."""


def run_one(options: Sequence[str]) -> tuple[int, str, str]:
    return run_cli("load-test", "run", *options)


def scenario(folder: Path, topic: str, client: str) -> str:
    """The file of a load of one client on a topic that is there."""
    file = folder / f"{client}.yaml"
    file.write_text(
        f"""
schema: kafka-quotas.scenario/1
name: {client}
title: a load for several processes
duration: 5s
warmup: 1s
topics: [{{name: {topic}, existing: true}}]
quotas: [{{entity: {{client-id: {client}}}, set: {{producer_byte_rate: {QUOTA}}}}}]
entities:
  - {{client-id: {client}, does: produce, topic: {topic}, client: raw, arrival: poisson, rate: 400rec/s,
     record-size: 100, stages: [{{duration: 3s, target: 800rec/s}}]}}
expect: [records.acked > 2000]
""",
        encoding="utf-8",
    )
    return str(file)


def run_together(kafka: Kafka, topic: str, out: Path) -> list[tuple[int, str, str]]:
    """Run one whole load and four shards of the same load at once, and return what each printed."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "numpy", "confluent_kafka", "kafka_quotas.cli.load_test.typed"])
    with ProcessPoolExecutor(5, mp_context=context) as pool:
        list(pool.map(run_one, [["--help"]] * 10))  # all are up
        start_at = datetime.fromtimestamp(int(time.time()) + AHEAD_S, tz=UTC).isoformat()
        common = (
            *("--bootstrap-server", kafka.bootstrap, "--start-at", start_at, "--yes"),
            *("--duration", "5s", "--journal-dir", str(out / "journal")),
        )
        whole = (scenario(out, topic, "whole"), *common, "--out", str(out / "whole"))
        file = scenario(out, topic, "parts")
        parts = [(file, *common, "--out", str(out / name), "--shard", f"{name[-1]}/4") for name in PARTS]
        return list(pool.map(run_one, [whole, *parts], timeout=120))


@pytest.mark.measuring  # five processes are ready in time, and their seconds are compared
def test_shards_are_one_load(kafka4: Kafka, unique_name: str, tmp_path: Path) -> None:
    make_topic(kafka4.bootstrap, unique_name, partitions=2)
    ends = run_together(kafka4, unique_name, tmp_path)
    assert [code for code, *_ in ends] == [0] * 5, ends

    parts = [str(tmp_path / name) for name in PARTS]
    code, out, err = run_cli("load-test", "merge", *parts, "--out", str(tmp_path / "all"), "--output", "json")
    assert code == 0, (out, err)
    merged, whole = (json.loads((tmp_path / name / "run.json").read_text("utf-8")) for name in ("all", "whole"))
    shards = [json.loads((Path(part) / "run.json").read_text("utf-8"))["entities"][0] for part in parts]
    one, every = whole["entities"][0], merged["entities"][0]

    assert every["books"]["due"] == one["books"]["due"] > 3000
    for part, counts in SUMS.items():
        for count in counts:
            assert every[part][count] == sum(shard[part][count] for shard in shards), (part, count)
    timed = sum(shard["latency"]["response"]["count"] for shard in shards)
    assert every["latency"]["response"]["count"] == timed > 2000
    by_second = zip(*(shard["seconds"]["records"] for shard in shards), strict=True)
    assert every["seconds"]["records"] == [sum(counts) for counts in by_second]
    assert every["seconds"]["records"] == pytest.approx(one["seconds"]["records"], rel=0.1)
    assert every["records"]["acked"] <= every["delivery"]["found"] <= every["records"]["sent"]
    assert [judgement["state"] for judgement in merged["judgements"]] == ["met"] * len(merged["judgements"])
    assert every["payload_bytes"] == pytest.approx(one["payload_bytes"], rel=0.02)
    together = sum(shard["verdict"]["achieved"] for shard in shards)
    assert every["verdict"]["achieved"] == pytest.approx(together, rel=0.05)
    assert (tmp_path / "all" / "samples.parquet").is_file()
    quotas = run_cli(
        "describe", "--bootstrap-server", kafka4.bootstrap, "--entity-type", "clients", "--output", "json"
    )[1]
    assert "parts" not in quotas
    assert "whole" not in quotas

    code, _, err = run_cli("load-test", "merge", *parts[:3])
    assert (code, "1 of 4 shards are missing: 2/4" in err) == (2, True)
