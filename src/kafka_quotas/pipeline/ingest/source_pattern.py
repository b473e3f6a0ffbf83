"""Patterns of `--source`: paths with `*`, `**`, `?` and places for broker, cluster and time.

logs/{broker_id}/kafka-request.log*      /scrapes/{cluster}/{broker_id}/{time}.prom
s3a://logs/{cluster}/{broker_id}/*.gz
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from glob import iglob
from pathlib import Path
from typing import Final

from kafka_quotas.core.errors import UsageError
from kafka_quotas.pipeline.formats.lines import RemoteFiles, SourceFile, list_files
from kafka_quotas.pipeline.tables.lake import is_url, lake_errors, lake_url

_PLACES: Final = {"broker_id": r"\d{1,9}", "cluster": r"[^/]+", "time": r"[^/]+?"}
_TOKEN: Final = re.compile(r"\{(\w+)\}|(\*\*/?)|(\*)|(\?)|(.)", re.DOTALL)
_WILD: Final = re.compile(r"[*?{]")
_HINT: Final = "for example --source 'logs/{broker_id}/kafka-request.log*'"
_MS_FROM: Final = 100_000_000_000
"""Whole numbers below this are seconds since 1970, others milliseconds: the border is March 1973 or the year 5138."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFile:
    """A file that a pattern matches, and the values in its path."""

    path: SourceFile
    broker_id: int | None = None
    """Value of `{broker_id}`, None where the pattern has none."""
    cluster: str | None = None
    """Value of `{cluster}`, None where the pattern has none."""
    time_ms: int | None = None
    """Value of `{time}` in ms since 1970, None where the pattern has none."""
    is_named: bool = False
    """Whether the user named this very file, rather than a folder or a pattern."""
    is_replacing: bool = False
    """Whether to read the file anew, in place of what earlier ingests made of it."""

    @property
    def place(self) -> SourceFile:
        """The file by its whole name."""
        return self.path.absolute() if isinstance(self.path, Path) else self.path


def find_files(pattern: str, remote: RemoteFiles | None = None) -> Iterator[FoundFile]:
    """Yield the visible files that a pattern matches, by path, and all files below a matching folder.

    At URLs, names that begin with `_` are hidden as well, as they are for Spark and Hadoop. `remote` lists the files
    there, None for delta-rs.

    Raises:
        UsageError: The pattern has an unknown place, or matches no file.
    """
    if is_url(pattern):
        yield from _find_remote(lake_url(pattern), pattern, remote)
        return
    if pattern.startswith("file:/"):
        pattern = lake_url(pattern)
    compiled = _compile(pattern)
    found = []
    # Our own matching takes brackets literally, so the glob has them escaped.
    as_glob = re.sub(r"\{\w+\}", "*", pattern.replace("[", "[[]"))
    for name in sorted(iglob(as_glob, recursive=True)):  # noqa: PTH207 - Path.glob takes no absolute one
        match = compiled.fullmatch(name)
        if match is not None:
            found += [_found(each, match) for each in _files(Path(name))]
    if not found:
        raise UsageError(f"no file matches {pattern}", hint=_HINT)
    yield from found


def _find_remote(url: str, pattern: str, remote: RemoteFiles | None) -> Iterator[FoundFile]:
    compiled = _compile(url)
    if _is_passed_over(url.rpartition("/")[2]):
        raise UsageError(f"{pattern} is hidden: Spark and Hadoop read no file of that name", hint="rename the file")
    fixed = _WILD.split(url)[0]
    folder = fixed[: fixed.rindex("/")]
    with lake_errors(f"listing {_WILD.split(pattern)[0].rpartition('/')[0]}"):
        files = list_files(folder) if remote is None else remote.listed(folder)
        by_url = sorted(files, key=lambda file: file.url)
    found = []
    for file in by_url:
        parts = file.url.removeprefix(f"{folder}/").split("/")
        places = ("/".join((folder, *parts[:depth])) for depth in range(len(parts), 0, -1))
        match = next((each for each in map(compiled.fullmatch, places) if each is not None), None)
        is_hidden = _is_passed_over(parts[-1]) or any(part.startswith(".") for part in parts)
        if match is not None and not is_hidden:
            found.append(replace(_found(file, match), is_named=file.url == url))
    if not found:
        raise UsageError(f"no file matches {pattern}", hint=_HINT)
    yield from found


def _is_passed_over(name: str) -> bool:
    """Check whether Spark passes over a file because of its name, without a word."""
    return (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_")


def find_paths(name: str, remote: RemoteFiles | None = None) -> Iterator[FoundFile]:
    """Yield the file, or all visible files below the folder, by path.

    `remote` lists those at URLs, None for delta-rs.

    Raises:
        UsageError: There is no file.
    """
    if is_url(name):
        yield from _find_remote(lake_url(name), name, remote)
        return
    path = Path(lake_url(name) if name.startswith("file:/") else name)
    found = [FoundFile(path=each, is_named=not path.is_dir()) for each in _files(path)]
    if not found:
        raise UsageError(f"there is no file {path}" if not path.is_dir() else f"no file is in {path}", hint=_HINT)
    yield from found


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path] if path.is_file() else []
    found = (each for each in path.rglob("*") if not any(name.startswith(".") for name in each.relative_to(path).parts))
    return sorted(each for each in found if each.is_file())


def _compile(pattern: str) -> re.Pattern[str]:
    seen: set[str] = set()

    def piece(token: re.Match[str]) -> str:
        name, deep, star, mark, letter = token.groups()
        if name is not None:
            if name not in _PLACES:
                raise UsageError(f"--source {pattern}: unknown place {{{name}}}", hint=f"known: {', '.join(_PLACES)}")
            first = name not in seen
            seen.add(name)
            return f"(?P<{name}>{_PLACES[name]})" if first else f"(?P={name})"
        if deep is not None:
            return "(?:.*/)?" if deep.endswith("/") else ".*"
        if star is not None:
            return "[^/]*"
        return "[^/]" if mark is not None else re.escape(letter)

    return re.compile(_TOKEN.sub(piece, pattern))


def _found(path: SourceFile, match: re.Match[str]) -> FoundFile:
    values = match.groupdict()
    broker, time = values.get("broker_id"), values.get("time")
    return FoundFile(
        path=path,
        broker_id=None if broker is None else int(broker),
        cluster=values.get("cluster"),
        time_ms=None if time is None else _time_ms(time, path),
    )


def _time_ms(text: str, path: SourceFile) -> int:
    """Return milliseconds since 1970 of a whole number or an ISO time, which is UTC without an offset."""
    if re.fullmatch(r"\d{1,15}", text, re.ASCII):
        number = int(text)
        return number if number >= _MS_FROM else number * 1000
    try:
        time = datetime.fromisoformat(text.replace("_", ":"))
    except ValueError as error:
        hint = "seconds since 1970, or an ISO time such as 2026-11-21T12:00:00Z, _ in place of : if wanted"
        raise UsageError(f"the name of {path} has no {{time}}: {text}", hint=hint) from error
    return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
