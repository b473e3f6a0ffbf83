"""Fixtures with real servers, shared by the whole test run.

| fixture | what |
|---|---|
| `kafka4` | one Kafka 4.3.1 broker under KRaft, as `tests.support.brokers.servers.Kafka` |
| `mortal_kafka4` | another one, which a test may stall or kill and has to leave running |
| `kafka4_cluster` | a Kafka 4.3.1 cluster of two brokers |
| `kafka3` | one Kafka 3.9.2 broker in ZooKeeper mode; `kafka3.zookeeper_url` is its store address |
| `zookeeper_server` | host:port of the ZooKeeper server that `kafka3` uses too |
| `zookeeper_chroot` | a `zk://` address under a fresh chroot of that server, for one test |
| `unique_name` | a name nobody else uses, for users, client-ids, topics |

They start when the first test asks, and stop with the run; see `tests/support/brokers/servers.py` for what runs there.
A test that asks for one of them is marked `integration` by that. With `--kafka4`, `--kafka4-cluster`, `--kafka3`
(host:port,...), `--kafka3-zookeeper` and `--zookeeper` servers that run elsewhere are used instead. Without Java the
tests are skipped; where Java is present, a server that does not come up is a failure.

Tests may run in several processes (`-n 5`). The tests of a file run in one of them, and each process has servers of its
own, so that no test sees the quotas that another sets meanwhile. Files that name a server of this table share three
processes, see `POOLS`, so that few servers are started; a fourth has what measures without them, and a fifth computes
meanwhile. Servers that run elsewhere are for one process, which has all of these files.
"""

import gc
import os
import signal
import uuid
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, TypeVar
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings
from kazoo.client import KazooClient
from tests.support.brokers.java_process import QUICK_START, java
from tests.support.brokers.maven import KAFKA_3, KAFKA_4, jars
from tests.support.brokers.servers import Kafka, kafka_3, kafka_4, zookeeper

T = TypeVar("T")

pytest_plugins = ["tests.conformance.tally"]
POOLS = (
    frozenset({"kafka3", "load/test_run.py", "load/test_verdicts.py"}),
    frozenset(
        {"kafka4_cluster", "zookeeper_server", "zookeeper_chroot", "operation/test_workers.py", "test_real_traffic.py"}
    ),
    frozenset({"kafka4", "mortal_kafka4"}),
    frozenset({"mark.measuring"}),
)
"""Test files by words in them or by name: those that fit one of these go to one process, by the first that they fit.

While one measures nobody else does anything else, so that each has about as long to measure: three minutes. The first
two start a `kafka4` in any case.
"""
SERVER_FIXTURES = frozenset(
    {"kafka3", "kafka4", "mortal_kafka4", "kafka4_cluster", "zookeeper_server", "zookeeper_chroot"}
)
SERVERS = ExitStack()
"""Those that run for the tests of this process, to the end of its pool: even an idle one has its work."""
_OPTIONS = {
    "--kafka4": "bootstrap servers of a running Kafka 4 broker",
    "--kafka4-cluster": "bootstrap servers of a running Kafka 4 cluster of two brokers or more",
    "--kafka3": "bootstrap servers of a running Kafka 3.9 broker in ZooKeeper mode",
    "--kafka3-zookeeper": "store address (zk://...) of the broker named with --kafka3",
    "--zookeeper": "host:port of a running ZooKeeper server",
}

_MOST_ALONE = 5
"""More measuring tests that fail in one run are no accident of what ran beside them."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the addresses of servers that run already."""
    group = parser.getgroup("servers", "real servers for the integration tests")
    for name, description in _OPTIONS.items():
        group.addoption(name, metavar="ADDRESS", help=f"{description}, instead of one of our own")
    parser.addoption("--long", action="store_true", help="run what is marked long as well")
    parser.addoption(
        "--alone", action="store_true", help="run the measuring tests that failed in the last run, in one process"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make the run independent of how busy the machine is, and of whether it was started in the background.

    An interrupt ends what tests start, and properties are judged by what they find, not by how long it took them.
    """
    settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("unhurried")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's doing, which every process would inherit
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("--alone"):
        config.args = sorted(config.cache.get("cache/lastfailed", {}))
        if not 0 < len(config.args) <= _MOST_ALONE:
            raise pytest.UsageError(f"{len(config.args)} tests failed; only up to {_MOST_ALONE} are measured again")
    worker = getattr(config, "workerinput", None)
    if worker is not None and config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        from tests.support.processes.scheduling import files_from_another  # noqa: PLC0415 - as below

        number = int(worker["workerid"].removeprefix("gw"))
        config.args = files_from_another(config.rootpath / "tests", number, worker["workercount"])


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep the collected tests, which stay to the end, out of every garbage collection of the run."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()  # with the little that is garbage by now, for to look for it takes each process most of a second
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that need a real server, and in one of several processes put all tests in their order.

    What is marked `long` is left out, unless `--long` is given or tests are named one by one (`FILE::TEST`).
    """
    if not config.getoption("--long") and not any("::" in each for each in config.args):
        left_out = [item for item in items if item.get_closest_marker("long") is not None]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item.get_closest_marker("long") is None]
    for item in items:
        if SERVER_FIXTURES.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.integration)
    if config.getoption("--alone") and any(item.get_closest_marker("measuring") is None for item in items):
        raise pytest.UsageError("a test failed that measures nothing, so it failed for what it found")
    if "PYTEST_XDIST_WORKER" in os.environ:
        from tests.support.processes.scheduling import in_order  # noqa: PLC0415 - only a run in several processes needs it

        items[:] = in_order(items, _groups(config))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out tests by file, and those of files that name servers by group."""
    from tests.support.processes.scheduling import FilesTogether  # noqa: PLC0415 - as above

    return FilesTogether(config, log, groups=_groups(config))


def _groups(config: pytest.Config) -> Sequence[frozenset[str]]:
    """The pools, or one for everything where servers run elsewhere."""
    if any(config.getoption(name) for name in _OPTIONS):
        return (frozenset[str]().union(*POOLS),)
    return POOLS


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Run what measures rates or times beside nothing but what measures as well, and end a pool's servers after it."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return (yield)
    from tests.support.processes.scheduling import TURNS, group_of  # noqa: PLC0415 - as above

    with TURNS.turn(item.config.cache.mkdir("turns"), item, nextitem):
        done = yield
    if nextitem is not None and nextitem.path != item.path:
        groups = _groups(item.config)
        if group_of(item.path, groups) != group_of(nextitem.path, groups):
            SERVERS.close()
    return done


def pytest_sessionfinish() -> None:
    """End the servers."""
    SERVERS.close()


@pytest.fixture(scope="session", autouse=True)
def _folders_of_our_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Neither the contexts, the journal nor the remembered names of whoever runs the tests are read or written.

    And Spark's Java starts quickly, for what it has to do in a test is little. The processes of a run share their
    cache, where executors keep the machine code of kernels: one of them compiles it, for half a minute.
    """
    home = tmp_path_factory.mktemp("home")
    kinds = {"XDG_CONFIG_HOME": "config", "XDG_STATE_HOME": "state"}
    folders = {variable: str(home / name) for variable, name in kinds.items()}
    run = tmp_path_factory.getbasetemp()
    shared = run.parent if "PYTEST_XDIST_WORKER" in os.environ else run
    folders["XDG_CACHE_HOME"] = str(shared / "cache")
    with mock.patch.dict(os.environ, {**folders, "SPARK_SUBMIT_OPTS": " ".join(QUICK_START)}):
        yield


@pytest.fixture
def unique_name() -> str:
    """A short name that no other test uses."""
    return f"t{uuid.uuid4().hex[:12]}"


@pytest.fixture(scope="session")
def kafka4(pytestconfig: pytest.Config) -> Kafka:
    """One Kafka 4 broker under KRaft."""
    address = pytestconfig.getoption("--kafka4")
    return _external(address, version=KAFKA_4.version) if address else _own(kafka_4(quick_start=True))


@pytest.fixture(scope="session")
def mortal_kafka4() -> Kafka:
    """One Kafka 4 broker under KRaft whose process a test may lay hands on.

    Always one of our own.
    """
    return _own(kafka_4(quick_start=True))


@pytest.fixture(scope="session")
def kafka4_cluster(pytestconfig: pytest.Config) -> Kafka:
    """A Kafka 4 cluster of two brokers."""
    address = pytestconfig.getoption("--kafka4-cluster")
    return _external(address, version=KAFKA_4.version) if address else _own(kafka_4(brokers=2, quick_start=True))


@pytest.fixture(scope="session")
def zookeeper_server(pytestconfig: pytest.Config) -> str:
    """The address of a ZooKeeper server."""
    return pytestconfig.getoption("--zookeeper") or _own(zookeeper())


@pytest.fixture(scope="session")
def kafka3(pytestconfig: pytest.Config, request: pytest.FixtureRequest) -> Kafka:
    """One Kafka 3.9 broker in ZooKeeper mode."""
    address = pytestconfig.getoption("--kafka3")
    if address:
        url = pytestconfig.getoption("--kafka3-zookeeper") or pytest.fail("--kafka3 needs --kafka3-zookeeper")
        return _external(address, version=KAFKA_3.version, zookeeper_url=url)
    address = request.getfixturevalue("zookeeper_server")
    return _own(kafka_3(zookeeper_address=address, quick_start=True))


@pytest.fixture
def zookeeper_chroot(zookeeper_server: str, unique_name: str) -> str:
    """A store address under a chroot of its own, where a cluster seems to live that has no quotas yet."""
    client = KazooClient(zookeeper_server)
    client.start()
    client.ensure_path(f"/{unique_name}/config")
    client.stop()
    client.close()
    return f"zk://{zookeeper_server}/{unique_name}"


def _external(address: str, *, version: str, zookeeper_url: str = "") -> Kafka:
    """A cluster that someone else runs.

    Kafka's tools for it come from Maven all the same.
    """
    folder = jars(KAFKA_3 if version == KAFKA_3.version else KAFKA_4)
    return Kafka(bootstrap=address, version=version, jars=folder, zookeeper_url=zookeeper_url)


def _own(server: AbstractContextManager[T]) -> T:
    """A server that runs from now on.

    Without Java the test is skipped.
    """
    if java() is None:
        pytest.skip("needs Java to start a real server, and there is no java on the path")
    return SERVERS.enter_context(server)
