"""A daemon that is restarted under load: no client gets an error, and nothing that was measured is forgotten."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.brokers.appended_records import appended, make_topic
from tests.support.brokers.fake_broker import FakeBroker, connected, fake_broker, is_closed, receive_frame
from tests.support.brokers.servers import Kafka
from tests.support.daemon.pinged import throttling_broker
from tests.support.daemon.process import running_daemon, set_quota
from tests.support.frames.enforcement import produce, throttle_of
from tests.support.load.numbered_load import LibrdkafkaLoad, number_of
from tests.support.processes.run_cli import run_cli

from kafka_quotas.core.model.entity import Entity

APP = Entity.of(client_id="app")
WINDOW = ("--quota-window-num", "3", "--quota-window-size-seconds", "10")


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with fake_broker(throttling_broker) as running:
        yield running


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_restart_is_no_way_around_a_quota(broker: FakeBroker, tmp_path: Path, workers: str) -> None:
    set_quota(tmp_path, APP, producer_byte_rate=20_000.0)
    options = (*WINDOW, "--workers", workers, "--state-file", str(tmp_path / "state"))
    with (
        running_daemon(tmp_path, upstream=broker.address, options=options) as old,
        connected(old.bootstrap) as muted,
        connected(old.bootstrap) as idle,
    ):
        muted.sendall(produce(1, size=460_000))
        assert throttle_of(receive_frame(muted), -4) == 3000
        # At once, so before the next save that time makes due: the last one is made at the end.
        assert old.stop() == 0
        assert is_closed(idle)
        assert is_closed(muted)
    listen = ("--listen", old.bootstrap)
    with running_daemon(tmp_path, upstream=broker.address, options=(*options, *listen)) as new:
        assert new.bootstrap == old.bootstrap
        with connected(new.bootstrap) as again:
            # Alone it is within the limit, as 20 s have room for 400 kB.
            again.sendall(produce(2, size=390_000))
            assert throttle_of(receive_frame(again), -4) > 0, "what was charged before the restart counts"


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_restart_under_load_costs_no_client_error(
    kafka4: Kafka, tmp_path: Path, unique_name: str, workers: str
) -> None:
    set_quota(tmp_path, Entity.of(client_id=unique_name), producer_byte_rate=300_000.0)
    options = ("--quota-window-num", "3", "--workers", workers, "--state-file", str(tmp_path / "state"))
    with running_daemon(tmp_path, upstream=kafka4.bootstrap, options=options) as first:
        make_topic(first.bootstrap, unique_name)
        load = LibrdkafkaLoad(first.bootstrap, unique_name, unique_name)
        try:
            load.goes_on(400)
            assert first.stop() == 0, "every request under way was answered"
            listen = ("--listen", first.bootstrap)
            with running_daemon(tmp_path, upstream=kafka4.bootstrap, options=(*options, *listen)) as second:
                second.wait_for_log("state restored", "buckets=1")
                load.goes_on(400)
                assert second.status().counters["connections_accepted"] > 0
                load.stop()
                records = appended(kafka4.bootstrap, unique_name)
        finally:
            load.give_up()
    found = Counter(number_of(record.value)[1] for record in records)
    assert load.failures == []
    assert [number for number, times in found.items() if times > 1] == []
    assert Counter(load.acknowledged) - found == Counter()


def test_the_removed_upgrade_names_what_does_its_work() -> None:
    code, _, said = run_cli("daemon", "upgrade", "--config", "daemon.toml")
    assert code == 2
    assert "restart" in said
    assert "--state-file" in said
