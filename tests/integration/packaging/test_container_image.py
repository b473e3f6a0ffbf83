"""The image of the Dockerfile: small, without root, and a daemon in front of a broker with what it says by default."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient
from tests.support.brokers.java_process import java
from tests.support.brokers.servers import kafka_4
from tests.support.processes.logged_process import LoggedProcess

ROOT = Path(__file__).resolve().parents[3]
BUILD_TIMEOUT_S = 540
STOP_TIMEOUT_S = 120
SUITE = "bookworm"
_CERTIFICATES = Path("/etc/ssl/certs")


def obstacle() -> str:
    """Why no image can be built here, or an empty text."""
    if os.geteuid() != 0:
        return "building the image without a container service needs root"
    missing = [program for program in ("mmdebstrap", "buildah") if shutil.which(program) is None]
    return f"{' and '.join(missing)} not installed (Debian's packages)" if missing else ""


@dataclass(frozen=True, slots=True)
class Image:
    """An image in a storage folder of its own."""

    storage: Path
    name: str

    def buildah(self, *arguments: str) -> str:
        """Run buildah on this storage and return what it printed."""
        return _run(*_storage_options(self.storage), *arguments)

    def settings(self) -> dict[str, Any]:
        """The image's settings in Docker's form: user, entry point, health check, labels."""
        inspected = json.loads(self.buildah("inspect", "--type", "image", self.name))
        settings: dict[str, Any] = inspected["Docker"]["config"]
        return settings

    @contextmanager
    def container(self, volume: Path) -> Iterator["Container"]:
        """A container of the image, removed at the end, with this folder as its volume."""
        user, _, group = self.settings()["User"].partition(":")
        os.chown(volume, int(user), int(group))
        name = self.buildah("from", self.name).strip()
        try:
            yield Container(self, name, volume)
        finally:
            self.buildah("rm", name)


@dataclass(frozen=True, slots=True)
class Container:
    """A container: its files, and the processes that run in it on the host's network."""

    image: Image
    name: str
    volume: Path

    @property
    def files(self) -> Path:
        """The folder on this machine that holds the container's file system."""
        return Path(self.image.buildah("mount", self.name).strip())

    def command(self, *arguments: str) -> list[str]:
        """The command line that runs a program as the image's user, without its entry point."""
        (mounted,) = self.image.settings()["Volumes"]
        options = ["--isolation", "chroot", "--volume", f"{self.volume}:{mounted}"]
        return [*_storage_options(self.image.storage), "run", *options, self.name, "--", *arguments]

    @contextmanager
    def entry_point(self, *arguments: str) -> Iterator["EntryPoint"]:
        """The image's entry point with these arguments, ended by SIGTERM at the end if it still runs."""
        process = subprocess.Popen(
            self.command(*self.image.settings()["Entrypoint"], *arguments), stderr=subprocess.PIPE, text=True
        )
        running = EntryPoint(process)
        try:
            yield running
        finally:
            running.stop()


class EntryPoint(LoggedProcess):
    """The running entry point, and what it logged."""

    def wait_for_event(self, text: str, timeout_s: float) -> dict[str, Any]:
        """The first line of the JSON log with this text, as soon as it is there."""
        event: dict[str, Any] = json.loads(self.wait_for_log(text, timeout_s=timeout_s))
        return event

    def stop(self) -> int:
        """End the program by SIGTERM, as a container's end does, and return its exit code."""
        if self._process.poll() is None:
            for pid in _descendants(self._process.pid):
                command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if b"daemon" in command and b"run" in command and b"buildah" not in command[0]:
                    os.kill(pid, signal.SIGTERM)
        try:
            return self._process.wait(STOP_TIMEOUT_S)
        finally:
            self._process.kill()
            self.close_log(STOP_TIMEOUT_S)


def build_image(folder: Path) -> Image:
    """Build the image of this checkout's Dockerfile on a Debian base that is made here.

    Storage in `folder`.
    """
    image = Image(folder / "storage", "localhost/kafka-quotas")
    base = image.buildah("from", "scratch").strip()
    packages = "coreutils,dash,python3,python3-venv"
    system = image.buildah("mount", base).strip()  # at once where it belongs: an archive is packed, unpacked and copied
    # Unpacked only: to configure a whole Debian takes four times the work, and each copy of it three times the space.
    _run("mmdebstrap", "--quiet", "--variant=extract", f"--include={packages}", SUITE, system)
    (Path(system) / "usr/local/bin").mkdir(parents=True)
    image.buildah("commit", "--quiet", "--rm", base, "localhost/base")
    # pip in the build stage trusts what this machine trusts.
    pip = folder / "pip.conf"
    pip.write_text(f"[global]\ncert = {_CERTIFICATES}/ca-certificates.crt\n", encoding="utf-8")
    mounts = ["--volume", f"{_CERTIFICATES}:{_CERTIFICATES}:ro", "--volume", f"{pip}:/etc/pip.conf:ro"]
    arguments = ["--isolation", "chroot", "--format", "docker", "--build-arg", "BASE=localhost/base", *mounts]
    image.buildah("bud", *arguments, "--tag", image.name, str(ROOT))
    return image


def _storage_options(storage: Path) -> list[str]:
    return ["buildah", "--root", str(storage), "--runroot", f"{storage}-run", "--storage-driver", "vfs"]


def _run(*arguments: str) -> str:
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=BUILD_TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _descendants(pid: int) -> Sequence[int]:
    """The processes below this one, children before their own."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        for child in map(int, (task / "children").read_text().split()):
            found += [child, *_descendants(child)]
    return found


pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(bool(obstacle()), reason=obstacle() or "it can be built"),
]
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
