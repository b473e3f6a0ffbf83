"""The topics of `kafka-quotas help` as pages of the documentation: environment variables, exit codes, units."""

import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from typer.core import TyperCommand, TyperGroup, TyperOption

from kafka_quotas.cli.help_topics import TOPICS

_FOLDER: Final = Path("docs/reference")
_PAGES: Final = {
    "environment": ("environment-variables.md", "Environment variables", "variable"),
    "exit-codes": ("exit-codes.md", "Exit codes", "code"),
    "units": ("units.md", "Units", "unit"),
}
"""File, title and first column of the page of each topic that is one."""
_CLOSINGS: Final = {
    "environment": """\
        An option beats its variable, a variable beats a context and a configuration file, and those beat the default.
        `kafka-quotas context show` and `kafka-quotas daemon check` show what is in force, and why. Folders
        follow the XDG base directories: `XDG_CONFIG_HOME` for contexts, `XDG_STATE_HOME` for the journal,
        `XDG_DATA_HOME` for the local store, `XDG_RUNTIME_DIR` for control sockets, `XDG_CACHE_HOME` for the names that
        completion keeps.""",
    "exit-codes": """\
        Data goes to standard output, everything else to standard error, in lines that begin with `error:`, `hint:`,
        `warning:` or `note:`. With several contexts `diff` and `apply` end with 1 if any of them failed. `daemon run`
        ends with 1 if connections had to be cut, `load-test` if something did not hold.""",
    "units": """\
        Values are printed in the unit in which they are exact: 10485760 as 10 MiB/s, 10000000 as 10 MB/s. JSON, YAML
        and CSV have plain numbers in Kafka's own units: bytes per second, per cent of one thread's time, partitions and
        connections per second. The name of a field says the unit of a time: `throttle_ms`, `window_s`.""",
}


def topic_pages(listed: Iterable[tuple[TyperCommand | TyperGroup, Any]]) -> dict[Path, str]:
    """Return the pages by their paths below the root of the repository.

    `listed` has every command with a Typer context of it.
    """
    pages = {_FOLDER / file: _page(topic, title, column) for topic, (file, title, column) in _PAGES.items()}
    pages[_FOLDER / _PAGES["environment"][0]] += "\n".join(_service_variables(listed))
    return pages


def _service_variables(listed: Iterable[tuple[TyperCommand | TyperGroup, Any]]) -> Iterator[str]:
    """Yield a paragraph of variables for each service, each variable with the first command that has it."""
    yield from ("", "## Options of services")
    seen: set[str] = set()
    for command, context in listed:
        named = {
            each.envvar for each in command.params if isinstance(each, TyperOption) and isinstance(each.envvar, str)
        }
        if new := sorted(named - seen):
            seen |= named
            text = f"`{context.command_path.partition(' ')[2]}`: {', '.join(f'`{name}`' for name in new)}"
            yield from ("", textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False))
    yield ""


def _page(topic: str, title: str, column: str) -> str:
    intro, rows, remark = TOPICS[topic]
    table = [f"| `{name}` | {meaning} |" for name, meaning in rows]
    closing = textwrap.fill(" ".join(_CLOSINGS[topic].split()), 120, break_long_words=False, break_on_hyphens=False)
    lines = [
        f"# {title}",
        "",
        intro,
        "",
        f"| {column} | meaning |",
        "|---|---|",
        *table,
        "",
        remark.replace("<", "\\<"),
        "",
        closing,
        "",
    ]
    return "\n".join(lines)
