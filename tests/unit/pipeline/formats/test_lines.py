"""Files at URLs, by their bytes: read as files of this machine are."""

import gzip
import io
from pathlib import Path
from typing import Any

import pytest
from tests.support.pipeline.logs import SAMPLES, log_text

from kafka_quotas.pipeline.formats import lines
from kafka_quotas.pipeline.formats.lines import (
    BUFFER_BYTES,
    LARGE_BLOCK,
    RemoteFile,
    SourceFile,
    count_lines_before,
    open_file,
    read_beginning,
    read_blocks,
)


def remote(content: bytes) -> RemoteFile:
    return RemoteFile(url="s3://logs/1/kafka-request.log", size=len(content), modified_ms=0, content=content)


@pytest.mark.parametrize("content", [log_text(90).encode(), gzip.compress(log_text(90).encode()), b"open line " * 9])
def test_bytes_are_read_as_a_file_is(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(content)

    def read(file: SourceFile) -> list[tuple[int, bytes, bool]]:
        return [(each.offset, bytes(each.content), each.is_open) for each in read_blocks(file, start=40, end=9_000)]

    file = remote(content)
    assert read(file) == read(path)
    assert read_beginning(file, 100) == read_beginning(path, 100)
    assert count_lines_before(file, 60) == count_lines_before(path, 60)


def test_a_piece_of_a_file_is_read_to_its_end_and_not_far_beyond(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, opened = tmp_path / "log", []
    path.write_bytes(log_text(9_000).encode())

    def open_and_keep(*arguments: Any) -> io.BufferedReader:
        opened.append(open_file(*arguments))
        return opened[-1]

    monkeypatch.setattr(lines, "open_file", open_and_keep)
    for block in read_blocks(path, start=100_000, end=2_000_000, block_bytes=LARGE_BLOCK):
        assert 2_000_000 <= block.end < opened[0].tell() < 2_000_000 + 2 * BUFFER_BYTES


def test_a_damaged_file_yields_what_is_before_the_damage() -> None:
    content = SAMPLES[1].read_bytes()
    *whole, last = read_blocks(remote(content[: len(content) // 2]))
    assert whole
    assert last.fault is not None
    assert "damaged" in last.fault
