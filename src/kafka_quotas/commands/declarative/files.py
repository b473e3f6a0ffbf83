"""Export a store as a file that `apply` reads, and validate files of quotas."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from kafka_quotas.commands.declarative.reading import files_of, read_declarations
from kafka_quotas.core.described import Described
from kafka_quotas.core.formats.nodes import Diagnostic, SourceLocation
from kafka_quotas.core.model.quota_filter import EVERYTHING, owner
from kafka_quotas.core.quota_files.writer import FileFormat, file_text, is_refused
from kafka_quotas.stores.store import QuotaEntry, Store


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportResult:
    """The entries, sorted by entity."""

    store_url: str
    entries: tuple[QuotaEntry, ...]
    invalid_entries: int
    """How many of them carry `invalid: true`."""

    def text(self, form: FileFormat) -> Iterator[str]:
        """Return the text of the file in pieces."""
        return file_text(((entry.entity, entry.quotas) for entry in self.entries), form)


def export(store: Store, *, selectors: Sequence[str] = ()) -> ExportResult:
    """Return what the store holds of the entities that the selectors name.

    Raises:
        UsageError: A selector can't be parsed.
    """
    owns = owner(selectors)
    entries = sorted(store.describe(EVERYTHING), key=lambda entry: entry.entity.sort_key)
    kept = tuple(entry for entry in entries if owns(entry.entity))
    invalid = sum(is_refused(entry.entity, entry.quotas) for entry in kept)
    return ExportResult(store_url=store.url, entries=kept, invalid_entries=invalid)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidateResult:
    """What was checked, and every problem with it."""

    DOCUMENT: ClassVar = "files entities invalid_entries problems"
    files: int
    entities: int
    invalid_entries: Annotated[int, Described(text="entries marked invalid")]
    problems: tuple[Diagnostic, ...]
    unused_values: tuple[str, ...]


def validate(paths: Sequence[str], *, values: Sequence[Path] = ()) -> ValidateResult:
    """Return every problem of the files with the values laid over them.

    Raises:
        UsageError: There is no such file.
    """
    found = read_declarations(paths, values)
    problems = found.problems
    if not problems and not found.entries:
        problems = (
            Diagnostic(
                location=SourceLocation(source=", ".join(paths)),
                message="no quotas are declared",
                hint="is it the right file?",
            ),
        )
    return ValidateResult(
        files=len(files_of(paths)),
        entities=len(found.entries),
        invalid_entries=sum(entry.invalid for entry in found.entries),
        problems=problems,
        unused_values=found.unused_values,
    )
