"""Runs the conformance files: one test per line, and at the end one line per file.

A plugin of the whole run: tests may run in several processes, of which each knows its own results only. Each report
carries the line that it is about, and each process tells at its end which lines there are.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from tests.conformance.lines import OWN_DATA, conformance_lines

_OPTION = "--conformance-data"
_TALLY = pytest.StashKey["Tally"]()
_PROPERTY = "conformance line"


class Tally:
    """Counts, per file, its lines and those that pass.

    A line passes when no phase of any test of it fails. A test may leave lines out, for reasons that are counted too.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lines: dict[str, int] = {}
        self.absent: set[str] = set()
        self.left_out: dict[tuple[str, str], Counter[str]] = {}
        self.expected: set[tuple[str, str, str]] = set()
        """File, line and test of everything that is to run."""
        self._called: set[tuple[str, str, str]] = set()
        self._failed: set[tuple[str, str, str]] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, about in report.user_properties:
            if name == _PROPERTY:
                file, line, test = cast("list[str]", about)
                if report.failed:
                    self._failed.add((file, line, test))
                elif report.when == "call" and report.passed:
                    self._called.add((file, line, test))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Tell the process that hands out the tests, if there is one, what was collected here."""
        if (output := getattr(session.config, "workeroutput", None)) is not None:
            left_out = [[*which, dict(reasons)] for which, reasons in self.left_out.items()]
            output[_PROPERTY] = [self.lines, list(self.absent), left_out, [list(each) for each in self.expected]]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take over what a process has collected.

        All of them collect the same.
        """
        lines, absent, left_out, expected = getattr(node, "workeroutput", {}).get(_PROPERTY, ({}, [], [], []))
        self.lines.update(lines)
        self.absent.update(absent)
        self.left_out.update({(file, test): Counter(reasons) for file, test, reasons in left_out})
        self.expected.update((file, line, test) for file, line, test in expected)

    def summary(self) -> Iterator[str]:
        """Yield one line per file: how many of its lines pass."""
        failed = {(file, line) for file, line, _ in self.expected - (self._called - self._failed)}
        passed: dict[str, int] = defaultdict(int)
        for file, _ in {(file, line) for file, line, _ in self.expected} - failed:
            passed[file] += 1
        for file in sorted({*self.lines, *self.absent}):
            if file in self.absent:
                yield f"{file}: skipped, not in {self.folder}"
            else:
                yield f"{file}: {passed[file]} of {self.lines[file]} lines pass"
                yield from self._without(file)

    def _without(self, file: str) -> Iterator[str]:
        """Yield one line per test that leaves lines of the file out, and per reason."""
        for (of_file, test), reasons in sorted(self.left_out.items()):
            if of_file == file:
                for reason, count in sorted(reasons.items()):
                    yield f"  {test}: {count} of them left out, {reason}"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(_OPTION, type=Path, default=OWN_DATA, metavar="DIR", help="folder of conformance files")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "conformance(file, left_out): one test per line of a conformance file for which left_out(line) tells no reason",
    )
    folder = config.getoption(_OPTION)
    if not folder.is_dir():
        raise pytest.UsageError(f"{_OPTION}: no such folder: {folder}")
    config.stash[_TALLY] = Tally(folder)
    config.pluginmanager.register(config.stash[_TALLY])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marker = metafunc.definition.get_closest_marker("conformance")
    if marker is None:
        return
    file, tally = str(marker.args[0]), metafunc.config.stash[_TALLY]
    if not (tally.folder / file).is_file():
        tally.absent.add(file)
        reason = pytest.mark.skip(reason=f"{file} is not in {tally.folder}")
        metafunc.parametrize("line", [pytest.param(None, marks=reason, id="absent")])
        return
    lines = conformance_lines(tally.folder / file)
    tally.lines[file] = len(lines)
    if (why_not := marker.kwargs.get("left_out")) is not None:
        reasons = [why_not(line) for line in lines]
        tally.left_out[file, metafunc.definition.name] = Counter(each for each in reasons if each is not None)
        lines = [line for line, reason in zip(lines, reasons, strict=True) if reason is None]
    metafunc.parametrize("line", lines, ids=[str(line.get("id", number)) for number, line in enumerate(lines, 1)])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        marker = item.get_closest_marker("conformance")
        if marker is not None:
            line = item.callspec.id if isinstance(item, pytest.Function) else ""
            about = str(marker.args[0]), line, item.nodeid
            config.stash[_TALLY].expected.add(about)
            item.user_properties.append((_PROPERTY, list(about)))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> Any:
    yield  # after everything else, so that the figures are the last that is read
    tally = config.stash[_TALLY]
    if tally.lines or tally.absent:
        terminalreporter.section("conformance")
        for line in tally.summary():
            terminalreporter.line(line)


@pytest.fixture
def conformance_folder(pytestconfig: pytest.Config) -> Path:
    """The folder the lines come from, for a test that needs another line of its file."""
    return pytestconfig.stash[_TALLY].folder
