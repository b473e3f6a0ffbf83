"""Files that are replaced as a whole: the old text or the new, and nothing left beside them."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.stores.files.atomic_write import replace_text, save_text


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
