"""Files that are replaced as a whole: the old text or the new, and nothing left beside them."""

import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.stores.files.atomic_write import clear_leftovers, replace_text, save_text


def interrupted() -> Iterator[str]:
    yield "half of "
    raise OSError(28, "No space left on device")


def test_a_text_that_breaks_off_leaves_the_old_one_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "quotas.yaml"
    path.write_text("old")
    with pytest.raises(KafkaQuotasError, match=r"can't write .*quotas\.yaml: No space left on device"):
        save_text(path, interrupted())
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_links_and_permissions_stay_and_a_private_file_is_nobody_elses(tmp_path: Path) -> None:
    real, link, secret = tmp_path / "real", tmp_path / "link", tmp_path / "secret"
    real.write_text("old")
    real.chmod(0o640)
    link.symlink_to(real)
    save_text(link, ["ne", "w"])
    replace_text(secret, ["s"], private=True)
    assert link.is_symlink()
    assert (real.read_text(), stat.S_IMODE(real.stat().st_mode)) == ("new", 0o640)
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600


def test_a_link_that_waits_under_the_temporary_name_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim, path = tmp_path / "victim", tmp_path / "quotas.yaml"
    victim.write_text("untouched")
    (tmp_path / f".quotas.yaml.{os.getpid()}").symlink_to(victim)
    replace_text(path, ["new"])
    monkeypatch.setattr(os, "urandom", bytes)
    trap = tmp_path / f".quotas.yaml.{os.getpid()}.00000000"
    trap.symlink_to(victim)
    with pytest.raises(FileExistsError):
        replace_text(path, ["newer"])
    assert (victim.read_text(), path.read_text(), trap.is_symlink()) == ("untouched", "new", True)


def test_only_what_killed_processes_of_this_user_left_is_cleared(tmp_path: Path) -> None:
    path = tmp_path / "state"
    dead = subprocess.Popen(["true"])
    dead.wait()
    alive, own, gone = os.getppid(), os.getpid(), dead.pid
    left = [f".state.{gone}.0123abcd", f".state.{own}.0123abcd"]
    others = [f".state.{alive}.0123abcd", f".state.{gone}", f".state.{gone}.txt", f".states.{gone}", ".state.", "state"]
    for name in (*left, *others):
        (tmp_path / name).touch()
    (tmp_path / f".state.{gone}.00000000").symlink_to(path)
    (tmp_path / f".state.{gone}.11111111").mkdir()
    clear_leftovers(path)
    assert {each.name for each in tmp_path.iterdir()} == {*others, f".state.{gone}.00000000", f".state.{gone}.11111111"}


def test_what_another_user_left_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / f".state.{os.getpid()}.0123abcd").touch()
    monkeypatch.setattr(os, "geteuid", lambda: (tmp_path.stat().st_uid) + 1)
    clear_leftovers(tmp_path / "state")
    assert len(list(tmp_path.iterdir())) == 1


def test_what_is_no_file_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        save_text(pipe, ["text"])
        assert os.read(reader, 100) == b"text"
    finally:
        os.close(reader)
    assert pipe.is_fifo()
