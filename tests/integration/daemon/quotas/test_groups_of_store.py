"""Groups that are applied to the store of a running daemon, beside those of its policy file."""

from pathlib import Path

import pytest
from tests.support.brokers.fake_broker import connected, fake_broker, receive_frame
from tests.support.daemon.pinged import throttling_broker
from tests.support.daemon.process import running_daemon, store_url
from tests.support.frames.enforcement import produce, throttle_of
from tests.support.processes.run_cli import printed

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
