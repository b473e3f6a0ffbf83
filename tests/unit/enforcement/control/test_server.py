"""Where a control socket may be: only where nobody but its owner can put another one in its place."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from kafka_quotas.core.errors import UsageError
from kafka_quotas.enforcement.control import server as control
from kafka_quotas.enforcement.control.client import find_control_path
from kafka_quotas.enforcement.control.server import ControlError, check_folder


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of this user's own in one that is as well, with a path short enough for a socket."""
    with TemporaryDirectory(prefix="kq-") as outer:
        place = Path(outer, "kafka-quotas")
        place.mkdir()
        for each in (place, place.parent):
            each.chmod(0o755)
        yield place


def test_a_folder_of_ones_own_and_a_sticky_one_are_good(folder: Path) -> None:
    check_folder(folder)
    folder.parent.chmod(0o1777)
    check_folder(folder)


@pytest.mark.parametrize("is_above", [False, True])
@pytest.mark.parametrize("mode", [0o777, 0o757])
def test_a_folder_that_others_may_write_to_is_not(folder: Path, mode: int, is_above: bool) -> None:
    place = folder.parent if is_above else folder
    place.chmod(mode)
    with pytest.raises(ControlError, match=f"{place} is no place for a control socket: other users may write to it"):
        check_folder(folder)


def test_a_folder_of_somebody_else_is_not(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = os.geteuid() or 12345
    for place in (folder, *folder.parents):
        if os.geteuid() == 0 and place.is_relative_to(folder.parent):
            os.chown(place, owner, -1)
    monkeypatch.setattr(control.os, "geteuid", lambda: owner + 1)
    folder.parent.chmod(0o1777)
    with pytest.raises(ControlError, match=f"it belongs to user {owner}"):
        check_folder(folder)


def test_a_link_is_judged_by_where_it_leads(folder: Path) -> None:
    real = folder / "real"
    real.mkdir()
    real.chmod(0o777)
    link = folder / "link"
    link.symlink_to(real)
    with pytest.raises(ControlError, match="other users may write to it"):
        check_folder(link)


def test_sockets_that_killed_daemons_left_behind_are_not_taken_for_daemons(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as served:
        for port in (9091, 9093):
            with socket.socket(socket.AF_UNIX) as killed:
                killed.bind(str(folder / f"daemon-{port}.sock"))
        assert find_control_path(folder=folder) == folder / "daemon-9091.sock", "any, to say that it does not answer"
        served.bind(str(folder / "daemon-9092.sock"))
        served.listen()
        assert find_control_path(folder=folder) == folder / "daemon-9092.sock"
        with socket.socket(socket.AF_UNIX) as another:
            another.bind(str(folder / "daemon-9094.sock"))
            another.listen()
            with pytest.raises(UsageError, match=r"several daemons are running: daemon-9092\.sock, daemon-9094\.sock"):
                find_control_path(folder=folder)


def test_a_socket_in_a_folder_of_anybodys_is_not_asked(folder: Path) -> None:
    (folder / "daemon-9092.sock").touch()
    assert find_control_path(folder=folder) == folder / "daemon-9092.sock"
    folder.chmod(0o777)
    with pytest.raises(ControlError, match="no place for a control socket"):
        find_control_path(folder=folder)
