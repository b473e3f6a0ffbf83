"""Runs the command line in this process, through the same door as the installed program."""

import contextlib
import io
from collections.abc import Iterator, Mapping
from unittest import mock

from kafka_quotas.cli.main import main


class _Terminal(io.StringIO):
    """Standard output or error as a terminal would be."""

    def isatty(self) -> bool:
        return True


def run_cli(*argv: str, terminal: bool = False, environment: Mapping[str, str] | None = None) -> tuple[int, str, str]:
    """(exit code, standard output, standard error) of `kafka-quotas ARGV`.

    `terminal` makes both streams look like terminals of 80 columns; `environment` is added to the process's own.
    """
    out, err = (_Terminal(), _Terminal()) if terminal else (io.StringIO(), io.StringIO())
    with _environment(environment or {}), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(argv)
    return code, out.getvalue(), err.getvalue()


@contextlib.contextmanager
def _environment(added: Mapping[str, str]) -> Iterator[None]:
    with mock.patch.dict("os.environ", {"COLUMNS": "80", "NO_COLOR": "1", **added}):
        yield
