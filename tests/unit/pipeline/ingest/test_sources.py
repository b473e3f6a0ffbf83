"""What an ingest learns of files before it reads them, for as little opening and memory as thousands of files allow."""

import gzip
import io
from collections import Counter
from pathlib import Path

import pytest
from tests.support.pipeline.logs import log_text

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.pipeline.formats import lines
from kafka_quotas.pipeline.formats.lines import SourceFile, open_file
from kafka_quotas.pipeline.formats.task import InputFormat
from kafka_quotas.pipeline.ingest.sources import HEAD_BYTES, FoundFile, inspect_files


def test_a_file_is_opened_once_and_its_head_alone_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: Counter[SourceFile] = Counter()

    def counting(file: SourceFile) -> io.BufferedReader:
        opened[file] += 1
        return open_file(file)

    monkeypatch.setattr(lines, "open_file", counting)
    text = log_text(90).encode()
    for number in range(30):
        (tmp_path / f"{number:02}").write_bytes(gzip.compress(text) if number % 2 else text)
    found = [FoundFile(path=path) for path in sorted(tmp_path.iterdir())]
    inspected = inspect_files(found, input_format=None)
    assert [each.found for each in inspected] == found
    assert opened == Counter(each.path for each in found)
    assert {each.input_format for each in inspected} == {InputFormat.REQUEST_LOG}
    assert {each.unpacked for each in inspected} == {len(text)}
    assert [each.is_packed for each in inspected] == [False, True] * 15
    assert {each.head for each in inspected} == {text[:HEAD_BYTES]}


def test_a_document_is_recognised_by_all_of_it_and_kept_nowhere(tmp_path: Path) -> None:
    scrape = b'kafka_server_produce_byte_rate{user="u",client_id=""} 5\n' * 40
    (tmp_path / "a.prom").write_bytes(scrape)
    (tmp_path / "b.prom").write_bytes(scrape + b"# later\n")
    found = [FoundFile(path=path) for path in sorted(tmp_path.iterdir())]
    first, second = inspect_files(found, input_format=None)
    assert (first.head, first.head_bytes, second.head_bytes) == (b"", len(scrape), len(scrape) + 8)
    assert first.head_sha256 != second.head_sha256


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(KafkaQuotasError, match=r"cannot read .*gone\.log: No such file"):
        inspect_files([FoundFile(path=tmp_path / "gone.log")], input_format=None)
