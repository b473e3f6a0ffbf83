"""What a Python worker of Spark is spared at the start and the end of each task."""

import gc
import sys
from pathlib import Path
from zipfile import ZipFile
from zipimport import zipimporter

import pytest

from kafka_quotas.pipeline.engine.spark_tasks import begin_task


def test_a_worker_forgets_its_archives_and_leaves_libraries_out_of_collections_whenever_it_has_loaded_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "modules.zip"
    with ZipFile(archive, "w") as file:
        file.writestr("module.py", "")
    frozen: list[int] = []
    tracked: list[list[str]] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(len(tracked)))
    monkeypatch.setattr(gc, "get_objects", lambda: tracked[-1])
    for count in (100_000, 100, 50_000, 100):
        tracked.append(["library"] * count)
        monkeypatch.setitem(sys.path_importer_cache, str(archive), zipimporter(str(archive)))
        begin_task()
        assert str(archive) not in sys.path_importer_cache
    assert frozen == [1, 3]
