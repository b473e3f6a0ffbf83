"""The calculator with the window settings of a real broker."""

import json

from tests.support.brokers.servers import Kafka
from tests.support.processes.run_cli import done, refused

from kafka_quotas.cli.options.windows import WINDOW_PROPERTIES, broker_source
from kafka_quotas.stores.address import StoreSettings


def test_the_calculator_takes_the_windows_of_the_brokers(kafka4_cluster: Kafka) -> None:
    url = f"kafka://{kafka4_cluster.bootstrap}"
    _, properties = broker_source(url, StoreSettings())
    assert set(properties) == set(WINDOW_PROPERTIES)
    command = ("throttle", "rate", "--quota", "5MB/s", "--observed", "6MB/s", "--output", "json")
    out = done(*command, "--bootstrap-server", kafka4_cluster.bootstrap)
    assert json.loads(out)["window"] == {
        "num": int(properties["quota.window.num"]),
        "size_seconds": int(properties["quota.window.size.seconds"]),
        "origin": f"brokers of {url}",
    }
    out = done(*command, "--bootstrap-server", kafka4_cluster.bootstrap, "--quota-window-num", "7")
    assert json.loads(out)["window"]["num"] == 7


def test_brokers_that_do_not_answer_are_one_line() -> None:
    command = ("throttle", "rate", "--quota", "5", "--observed", "6", "--bootstrap-server", "127.0.0.1:1")
    err = refused(*command, code=1)
    assert err.startswith("error: ")
    assert len(err.splitlines()) <= 2
