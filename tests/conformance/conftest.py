"""Runs the conformance files: one test per line, and at the end one line per file."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.lines import OWN_DATA, conformance_lines

_OPTION = "--conformance-data"
_TALLY = pytest.StashKey["Tally"]()


class Tally:
    """Counts, per file, its lines and those that pass; a line passes when no phase of any test of it fails.

    A test may leave lines out, for reasons that are counted too.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lines: dict[str, int] = {}
        self.absent: set[str] = set()
        self.left_out: dict[tuple[str, str], Counter[str]] = {}
        self._line_of: dict[str, tuple[str, str]] = {}
        self._called: set[str] = set()
        self._failed: set[str] = set()

    def expect(self, nodeid: str, file: str, line: str) -> None:
        """Nothing; results of this test count for that line of that file from now on."""
        self._line_of[nodeid] = file, line

    def see(self, report: pytest.TestReport) -> None:
        """Nothing; takes the outcome of one phase of a test into account."""
        if report.failed:
            self._failed.add(report.nodeid)
        elif report.when == "call" and report.passed:
            self._called.add(report.nodeid)

    def summary(self) -> Iterator[str]:
        """One line per file: how many of its lines pass."""
        good = self._called - self._failed
        failed = {line for nodeid, line in self._line_of.items() if nodeid not in good}
        passed: dict[str, int] = defaultdict(int)
        for file, _ in {*self._line_of.values()} - failed:
            passed[file] += 1
        for file in sorted({*self.lines, *self.absent}):
            if file in self.absent:
                yield f"{file}: skipped, not in {self.folder}"
            else:
                yield f"{file}: {passed[file]} of {self.lines[file]} lines pass"
                yield from self._without(file)

    def _without(self, file: str) -> Iterator[str]:
        """One line per test that leaves lines of the file out, and per reason."""
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
    folder = config.getoption(_OPTION, default=OWN_DATA)  # the option is unknown where only tests/ was named
    if not folder.is_dir():
        raise pytest.UsageError(f"{_OPTION}: no such folder: {folder}")
    config.stash[_TALLY] = Tally(folder)


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
            config.stash[_TALLY].expect(item.nodeid, str(marker.args[0]), line)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    report = yield
    item.config.stash[_TALLY].see(report)
    return report


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
