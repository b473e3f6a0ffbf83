"""The examples that come with the program: all are described, and copies leave existing files alone."""

from pathlib import Path

import pytest

from kafka_quotas.commands.examples import EXAMPLES, copy_examples, examples_folder
from kafka_quotas.core.errors import UsageError

ROOT = Path(__file__).resolve().parents[3]


def test_every_example_is_described() -> None:
    assert examples_folder() == ROOT / "examples"
    assert sorted(EXAMPLES) == sorted(path.name for path in (ROOT / "examples").iterdir())


def test_named_examples_are_copied_with_their_folders(tmp_path: Path) -> None:
    copied = copy_examples(["quotas", "contexts.toml"], tmp_path / "new")
    assert sorted(copied) == sorted(path for path in (tmp_path / "new").rglob("*") if path.is_file())
    for path in copied:
        assert path.read_bytes() == (ROOT / "examples" / path.relative_to(tmp_path / "new")).read_bytes()


def test_nothing_is_copied_where_one_file_is_there(tmp_path: Path) -> None:
    mine = tmp_path / "quotas" / "web.yaml"
    mine.parent.mkdir()
    mine.write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError, match=r"web\.yaml is there already"):
        copy_examples([], tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [mine]
    assert mine.read_text(encoding="utf-8") == "mine"


def test_an_unknown_example_is_refused_with_the_list(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no example is called 'quota'") as caught:
        copy_examples(["quota"], tmp_path)
    assert caught.value.hint == "kafka-quotas examples list shows them"
