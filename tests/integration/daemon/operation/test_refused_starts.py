"""What keeps a daemon from starting: it is said in one line with a hint at most, and nothing starts."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.brokers.fake_broker import answer_each, fake_broker
from tests.support.daemon.process import DaemonProcess, running_daemon, store_url
from tests.support.processes.run_cli import run_cli

FOLDER = "FOLDER"
"""What a case says for the folder of its test."""
LISTENER = {
    "nonsense=1": "unknown property nonsense",
    "listen=127.0.0.1:9092": "can't be given here",
    "security.protocol=TLS": "not a security protocol",
    "security.protocol=SSL": "needs a key",
    "proxy.protocol.trusted=everybody": "proxy.protocol.trusted",
    "broker.host.pattern=kafka.example": "names all brokers alike",
    "max.connections=0": "not a whole number from 1 to",
    "ssl.principal.mapping.rules=nonsense": "not a rule",
}
"""Lines of a listener's file, and what is said of them."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    folder = tmp_path_factory.mktemp("running")
    with fake_broker(answer_each) as broker, running_daemon(folder, upstream=broker.address) as daemon:
        yield daemon


def refused(folder: Path, options: dict[str, str], said: str, *, code: int = 2) -> str:
    """What a daemon with these options says on its way to its exit code."""
    usual = {"--upstream": "127.0.0.1:1", "--listen": "127.0.0.1:0", "--store": store_url(folder)}
    given = usual | {"--control": str(folder / "control.sock")} | options
    ended, out, err = run_cli("daemon", "run", *(word for option in given.items() for word in option))
    assert (ended, out) == (code, ""), err
    assert said in err
    assert "Traceback" not in err
    return err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"--upstream": "nonsense"}, "not a host:port"),
        ({"--upstream": "b1:9092,"}, "not a host:port"),
        ({"--broker-address": "1"}, "not an address of a broker"),
        ({"--broker-address": "1=2,1=3"}, "two addresses"),
        ({"--principal": "a\udcff"}, "--principal: not valid UTF-8"),
        (
            {"--upstream": "b1:9,b2:9", "--listen": "127.0.0.1:9192", "--broker-address": "1=9192"},
            "several upstreams",
        ),
        ({"--store": f"static:{FOLDER}/x", "--static-quotas": "x"}, "another store"),
        ({"--static-quotas": f"{FOLDER}/absent"}, "absent"),
    ],
)
def test_options_that_cannot_be_meant(options: dict[str, str], said: str, tmp_path: Path) -> None:
    refused(tmp_path, {name: value.replace(FOLDER, str(tmp_path)) for name, value in options.items()}, said)


def test_places_that_are_taken_or_are_not_there(running: DaemonProcess, tmp_path: Path) -> None:
    refused(tmp_path, {"--listen": running.bootstrap}, "can't listen on 127.0.0.1", code=1)
    refused(tmp_path, {"--control": str(running.control)}, "another daemon answers", code=1)
    absent, mistyped = tmp_path / "absent", tmp_path / "mistyped"
    refused(tmp_path, {"--store": f"static:{absent}"}, f"error: cannot read {absent}: No such file", code=1)
    refused(
        tmp_path, {"--store": f"local:{mistyped / 'quotas.db'}"}, f"there is no folder {mistyped}\nhint: check the path"
    )


@pytest.mark.parametrize("line", LISTENER)
def test_a_line_of_a_listeners_file(line: str, tmp_path: Path) -> None:
    path = tmp_path / "listener.properties"
    path.write_text(f"{line}\n", encoding="utf-8")
    refused(tmp_path, {"--listener-config": str(path)}, LISTENER[line])


def test_a_policy_file_with_a_mistake(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text("[[entity]]\nuser = 'alice'\nmode = 'fast'\n")
    said = f"error: {policy}:3: entity.1.mode: 'fast' is not one of kafka, smooth, shadow\n"
    assert refused(tmp_path, {"--policy": str(policy)}, said) == said
