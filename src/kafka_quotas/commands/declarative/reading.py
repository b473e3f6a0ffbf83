"""Files and folders of quotas, or one plan file named instead, read into documents.

Invariants: nothing larger than a limit is read; a folder is read file by file in the order of names, with what lies
below it, hidden names left out; `-` is standard input, taken as YAML (of which JSON is a part). `commands.other_tools`
recognises and reads files of other tools.
"""

import stat
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from kafka_quotas.commands.other_tools.formats import Read, Tool, format_of, recognised
from kafka_quotas.core.changes.plan import KeptPlan, is_plan, plan_from, plan_text
from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.core.formats.nodes import Diagnostic, DocumentError, Node, json_node, toml_node
from kafka_quotas.core.quota_files.declarations import SECTIONS, Declarations, QuotaDocument, declarations, document_of
from kafka_quotas.core.quota_files.writer import FileFormat

MAX_BYTES: Final = 32 * 1024 * 1024
"""The largest file: 100,000 entities take a third of it, and what is hostile shows within it in a second."""
MAX_TOML_BYTES: Final = 1024 * 1024
"""The readers of TOML and Terraform files are twenty times slower than the others."""
MAX_FILES: Final = 10_000
STANDARD_INPUT: Final = "-"
FORMATS: Final = {
    ".yaml": FileFormat.YAML,
    ".yml": FileFormat.YAML,
    ".json": FileFormat.JSON,
    ".toml": FileFormat.TOML,
}
_IN_FOLDERS: Final = (*FORMATS, ".tf")
_SLOW: Final = (".toml", ".tf")


def read_declarations(paths: Sequence[str], values: Sequence[Path] = (), *, tool: Tool | None = None) -> Declarations:
    """Read the declarations of files, folders or standard input, with the `values` files laid over them.

    A file that can't be read is one of the problems. The files are of a `tool`, or of those that they look like.
    """
    problems: list[Diagnostic] = []
    documents = list(_documents(files_of(paths), problems, tool))
    overlays = list(_documents([str(path) for path in values], problems))
    found = declarations(documents, overlays)
    if not problems:
        return found
    return replace(found, problems=(*problems, *found.problems))


def declared(paths: Sequence[str], values: Sequence[Path] = (), *, tool: Tool | None = None) -> Declarations:
    """Read the declarations and refuse any problem."""
    found = read_declarations(paths, values, tool=tool)
    if found.problems:
        first = found.problems[0].as_error()
        if len(found.problems) == 1:
            raise first
        others = len(found.problems) - 1
        hint = f"kafka-quotas validate {paths[0]} lists them all"
        raise UsageError(f"{first.message} (and {others} more)", hint=hint)
    if not found.entries and not found.groups:
        left = "".join(f"; left out: {each.location}: {each.message}" for each in found.left_out[:1])
        raise UsageError(
            f"no quotas are declared in {', '.join(paths)}{left}",
            hint="an empty input is refused; is it the right file?",
        )
    return found


def read_plan(paths: Sequence[str]) -> KeptPlan | None:
    """Read the plan where it is the only file named, None where the paths name anything else."""
    for path in paths:
        if Path(path).suffix != ".json" or not Path(path).is_file():
            continue
        try:
            document = json_node(_text(path), path).plain()
        except DocumentError:
            continue  # reported when it is read as a file of quotas
        if is_plan(document):
            if len(paths) > 1:
                raise UsageError(f"{path} is a plan, which is applied alone", hint=f"kafka-quotas apply {path}")
            return plan_from(document)
    return None


def write_plan(path: Path, plan: KeptPlan) -> None:
    """Write a plan to a file."""
    try:
        path.write_text(plan_text(plan), encoding="utf-8")
    except OSError as error:
        raise KafkaQuotasError(f"cannot write {path}: {error.strerror or error}") from error


def files_of(paths: Sequence[str]) -> list[str]:
    """Return the named files, and those in named folders, each once."""
    found: list[str] = []
    for path in paths:
        found += [path] if path == STANDARD_INPUT or not Path(path).is_dir() else _files_below(Path(path))
        if len(found) > MAX_FILES:
            raise UsageError(f"more than {MAX_FILES} files", hint="is it the right folder?")
    return list(dict.fromkeys(found))


def form_by_name(path: Path) -> FileFormat | Tool | None:
    """Return the form of a file to write, by its name, or None for a name that shows none."""
    return FORMATS.get(path.suffix) or recognised(str(path), "")


def _files_below(folder: Path) -> list[str]:
    found = [
        str(path)
        for path in sorted(folder.rglob("*"))
        if path.suffix in _IN_FOLDERS
        and path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
    if not found:
        raise UsageError(f"no .yaml, .yml, .json, .toml or .tf file in {folder}", hint="is it the right folder?")
    return found


def _documents(paths: Sequence[str], problems: list[Diagnostic], tool: Tool | None = None) -> Iterator[QuotaDocument]:
    for path in paths:
        document: QuotaDocument | None
        found: Sequence[Diagnostic]
        try:
            document, found = _document(path, tool)
        except DocumentError as error:
            document, found = None, error.problems
        problems += found
        if document is not None:
            yield document


def _document(path: str, tool: Tool | None) -> Read | tuple[QuotaDocument | None, tuple[Diagnostic, ...]]:
    text, name = _text(path), "standard input" if path == STANDARD_INPUT else path
    tool = tool or recognised(path, text)
    return document_of(_node(path, text, name)) if tool is None else format_of(tool).read(text, name)


def _node(path: str, text: str, name: str) -> Node:
    form = FileFormat.YAML if path == STANDARD_INPUT else FORMATS.get(Path(path).suffix)
    match form:
        case FileFormat.YAML:
            from kafka_quotas.stores import yaml_node  # noqa: PLC0415 - loads PyYAML

            return yaml_node(text, name, sections=SECTIONS)
        case FileFormat.JSON:
            return json_node(text, name)
        case FileFormat.TOML:
            return toml_node(text, name)
        case _:
            raise UsageError(
                f"the name {path} does not show the format",
                hint="name it .yaml, .json, .toml, .tf or .sh, or send it to -",
            )


def _text(path: str) -> str:
    limit = MAX_TOML_BYTES if Path(path).suffix in _SLOW else MAX_BYTES
    try:
        data = sys.stdin.buffer.read(limit + 1) if path == STANDARD_INPUT else _bytes(Path(path), limit)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}", hint="check the name of the file") from error
    if len(data) > limit:
        hint = "split it, or write it as JSON" if path.endswith(".toml") else "split it into several files"
        raise DocumentError.at(path, f"larger than {limit // 1024**2} MiB", hint=hint)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DocumentError.at(path, "not UTF-8", line=line, hint="save it as UTF-8") from error


def _bytes(path: Path, limit: int) -> bytes:
    if stat.S_ISDIR(path.stat().st_mode):
        raise UsageError(f"{path} is a folder")
    with path.open("rb") as file:
        return file.read(limit + 1)
