"""Whether files of quotas are in order."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kafka_quotas.commands.quota_reading import files_of, read_declarations
from kafka_quotas.core.quota_file import Place, Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidateResult:
    """What was looked at, and everything that is wrong with it; `invalid_entries` are those that say so themselves."""

    files: int
    entities: int
    invalid_entries: int
    problems: tuple[Problem, ...]
    unused_values: tuple[str, ...]


def validate(paths: Sequence[str], *, values: Sequence[Path] = ()) -> ValidateResult:
    """Everything that is wrong with the files, the values laid over them.

    Raises `UsageError` where there is no such file.
    """
    found = read_declarations(paths, values)
    problems = found.problems
    if not problems and not found.entries:
        problems = (
            Problem(
                place=Place(source=", ".join(paths)), message="no quotas are declared", hint="is it the right file?"
            ),
        )
    return ValidateResult(
        files=len(files_of(paths)),
        entities=len(found.entries),
        invalid_entries=sum(entry.invalid for entry in found.entries),
        problems=problems,
        unused_values=found.unused_values,
    )
