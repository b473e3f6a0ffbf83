"""The image of the Dockerfile: small, without root, and a daemon in front of a broker with what it says by default."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient
from tests.support.brokers.java_process import java
from tests.support.brokers.servers import kafka_4
from tests.support.packaging.container import Container, Image, build_image, obstacle

pytestmark = pytest.mark.skipif(bool(obstacle()), reason=obstacle() or "it can be built")
MOST_BYTES = 200_000_000
"""350 MB with a whole Debian, which takes some 150 MB more than the base here."""
TIMEOUT_S = 120.0
USER_ID = 10001


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    built = build_image(tmp_path_factory.mktemp("image"))
    yield built
    built.buildah("rmi", "--all", "--force")


@pytest.fixture(scope="module")
def container(image: Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    with image.container(tmp_path_factory.mktemp("volume")) as made:
        yield made


def size_bytes(folder: Path) -> int:
    """What the files take, each once however many names it has."""
    sizes: dict[tuple[int, int], int] = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            status = (Path(parent) / name).lstat()
            sizes[status.st_dev, status.st_ino] = status.st_size
    return sum(sizes.values())


def test_the_image_is_small_and_holds_no_source_and_no_pip(container: Container) -> None:
    files = container.files
    assert size_bytes(files) < MOST_BYTES
    assert not (files / "source").exists()
    assert not list((files / "opt/kafka-quotas").glob("lib/*/site-packages/pip"))
    assert (files / "opt/kafka-quotas/share/man/man1/kafka-quotas.1").is_file()


@pytest.mark.integration
@pytest.mark.skipif(java() is None, reason="needs Java to start a broker, and there is no java on the path")
def test_a_daemon_of_the_image_serves_a_producer_without_root(container: Container, unique_name: str) -> None:
    settings = container.image.settings()
    assert settings["User"] == f"{USER_ID}:{USER_ID}"
    # A broker of this test alone: with the one that others share the image would wait for all of them.
    with kafka_4(quick_start=True) as kafka:
        options = ["--upstream", kafka.bootstrap, "--listen", "127.0.0.1:0", "--metrics-port", "127.0.0.1:0"]
        with container.entry_point(*options) as daemon:
            listening = daemon.wait_for_event("daemon listening", TIMEOUT_S)
            bootstrap = str(listening["listen"])
            AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=TIMEOUT_S)
            delivered: list[Message] = []
            producer = Producer({"bootstrap.servers": bootstrap, "client.id": unique_name})
            producer.produce(unique_name, b"x", on_delivery=lambda error, message: delivered.append(message))
            assert producer.flush(TIMEOUT_S) == 0
            assert [message.error() for message in delivered] == [None]
            del producer
            assert (container.volume / "daemon.sock").stat().st_uid == USER_ID
            word, *check = settings["Healthcheck"]["Test"]
            assert word == "CMD"
            port = str(listening["metrics"]).rsplit("/", 1)[0].rpartition(":")[2]
            check = [argument.replace("9404", port) for argument in check]
            assert subprocess.run(container.command(*check), check=False, timeout=TIMEOUT_S).returncode == 0
            assert daemon.stop() == 0
        assert (container.volume / "state.json").exists()
        failed = subprocess.run(container.command(*check), check=False, timeout=TIMEOUT_S, capture_output=True)
        assert failed.returncode != 0
