"""Quotas written to a file and read back, in every format."""

from collections.abc import Mapping
from pathlib import Path

from kafka_quotas.commands.declarative.reading import read_declarations
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.quota_files.writer import FileFormat, file_text

Content = Mapping[Entity, Mapping[str, float]]


def read_back(content: Content, form: FileFormat, folder: Path) -> dict[Entity, Mapping[str, float | None]]:
    """What a file with this content declares.

    There is no problem with it.
    """
    path = folder / f"quotas.{form}"
    path.write_text("".join(file_text(content.items(), form)), encoding="utf-8")
    found = read_declarations([str(path)])
    assert found.problems == (), path.read_text(encoding="utf-8")
    return found.desired()


def same_content(one: Content, other: Mapping[Entity, Mapping[str, float | None]]) -> bool:
    """Whether two contents are the same to the last bit.

    NaN is the same as itself.
    """
    return _spelt(one) == _spelt(other)


def _spelt(content: Mapping[Entity, Mapping[str, float | None]]) -> dict[Entity, dict[str, str]]:
    return {entity: {key: repr(value) for key, value in quotas.items()} for entity, quotas in content.items()}
