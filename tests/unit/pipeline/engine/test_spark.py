"""What a Python worker of Spark is spared at the start and the end of each task."""

import gc
import sys
from pathlib import Path
from zipfile import ZipFile
from zipimport import zipimporter

import pytest

from kafka_quotas.pipeline.engine.spark import begin_task


def test_a_worker_forgets_its_archives_and_leaves_its_libraries_out_of_collections_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "modules.zip"
    with ZipFile(archive, "w") as file:
        file.writestr("module.py", "")
    frozen: list[int] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(1))
    monkeypatch.setattr(gc, "get_freeze_count", lambda: len(frozen))
    for _ in range(2):
        monkeypatch.setitem(sys.path_importer_cache, str(archive), zipimporter(str(archive)))
        begin_task()
        assert str(archive) not in sys.path_importer_cache
    assert frozen == [1]
