"""Groups that are applied to the store of a running daemon, beside those of its policy file."""

import socket
from functools import partial
from pathlib import Path

import pytest
from tests.support.brokers.fake_broker import connected, fake_broker, receive_frame
from tests.support.brokers.servers import Kafka
from tests.support.daemon.pinged import throttling_broker
from tests.support.daemon.process import running_daemon, store_url
from tests.support.frames.enforcement import produce, throttle_of
from tests.support.processes.awaiting import await_true
from tests.support.processes.run_cli import printed, refused, run_cli

from kafka_quotas.enforcement.control.client import RefusedError, ask_reload

LIMITED = "group: [{name: apps, members: [{client_id_prefix: ap}], producer_byte_rate: 1000}]"


def test_an_applied_group_holds_connected_clients_and_one_that_does_not_fit_changes_nothing(tmp_path: Path) -> None:
    policy, quotas, store = tmp_path / "policy.toml", tmp_path / "quotas.yaml", store_url(tmp_path)
    policy.write_text('[[group]]\nname = "other"\nproducer_byte_rate = 1\n')
    journal = {"KAFKA_QUOTAS_JOURNAL": str(tmp_path / "journal")}
    with (
        fake_broker(throttling_broker) as broker,
        running_daemon(tmp_path, upstream=broker.address, options=["--policy", str(policy)]) as daemon,
        connected(daemon.bootstrap) as client,
    ):
        client.sendall(produce(1, size=100_000))
        assert throttle_of(receive_frame(client), -4) == 0
        quotas.write_text(LIMITED)
        printed("apply", str(quotas), "--store", store, environment=journal)
        daemon.wait_until(lambda status: status.store.limits == 2)
        client.sendall(produce(2, size=100_000))
        assert throttle_of(receive_frame(client), -4) > 0

        quotas.write_text(LIMITED.replace("1000", "500")[:-1] + ", {name: other}]")
        printed("apply", str(quotas), "--store", store, environment=journal)
        said = daemon.wait_for_log("store can't be read")
        assert "group other: it is declared twice" in said
        assert daemon.status().store.limits == 2
        policy.write_text("")
        assert ask_reload(daemon.control).store_trouble is None
        daemon.wait_for_log("store is reached again")
        assert daemon.status().store.limits == 1

        policy.write_text('[[group]]\nname = "apps"\n')
        with pytest.raises(RefusedError, match="declared twice"):
            ask_reload(daemon.control)
        assert len(daemon.lines("store can't be read")) == 1


def answers(client: socket.socket, *, is_throttled: bool) -> bool:
    """Whether the next Produce of a client is throttled, or not, as expected."""
    client.sendall(produce(1, size=3000))
    return (throttle_of(receive_frame(client), -4) > 0) is is_throttled


def test_workers_follow_the_groups_of_the_store(tmp_path: Path) -> None:
    quotas = tmp_path / "quotas.yaml"
    journal = {"KAFKA_QUOTAS_JOURNAL": str(tmp_path / "journal")}
    with (
        fake_broker(throttling_broker) as broker,
        running_daemon(tmp_path, upstream=broker.address, options=["--workers", "2"]) as daemon,
        connected(daemon.bootstrap) as one,
        connected(daemon.bootstrap) as other,
    ):
        for limit, is_throttled in (("1000", True), ("unlimited", False)):
            quotas.write_text(LIMITED.replace("1000", limit))
            printed("apply", str(quotas), "--store", store_url(tmp_path), environment=journal)
            for client in (one, other):
                await_true(partial(answers, client, is_throttled=is_throttled), f"a limit of {limit} counts")


def test_of_a_file_with_both_parts_kafka_gets_the_quotas_and_the_daemon_the_groups(
    kafka4: Kafka, tmp_path: Path, unique_name: str
) -> None:
    store, policy, quotas = f"kafka://{kafka4.bootstrap}", tmp_path / "policy.toml", tmp_path / "quotas.yaml"
    policy.write_text("# of the daemon\n")
    quotas.write_text(f"{LIMITED}\nentries: [{{entity: {{user: {unique_name}}}, quotas: {{producer_byte_rate: 7}}}}]\n")
    journal = {"KAFKA_QUOTAS_JOURNAL": str(tmp_path / "journal")}
    told = refused("apply", str(quotas), "--store", store, environment=journal)
    assert "Kafka has no groups, so this store can't hold group apps" in told
    named = ("--store", store, "--policy", str(policy))
    options = ["--policy", str(policy)]
    with (
        fake_broker(throttling_broker) as broker,
        running_daemon(tmp_path, upstream=broker.address, store=store, options=options) as daemon,
        connected(daemon.bootstrap) as client,
    ):
        client.sendall(produce(1, size=100_000))
        assert throttle_of(receive_frame(client), -4) == 0
        printed("apply", str(quotas), *named, environment=journal)
        assert f"user {unique_name}" in printed("describe", "--user", unique_name, "--store", store)
        ask_reload(daemon.control)
        client.sendall(produce(2, size=100_000))
        assert throttle_of(receive_frame(client), -4) > 0
    selected = ("--selector", f"user={unique_name}", "--selector", "group")
    assert run_cli("diff", str(quotas), *named, *selected, "--exit-code")[0] == 0
