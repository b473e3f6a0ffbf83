"""Runs the command line in this process, through the same door as the installed program."""

import contextlib
import io
import os
from collections.abc import Iterator, Mapping
from typing import Any
from unittest import mock

from tests.support.processes.output_contract import check_output

from kafka_quotas.cli.main import main


class _Terminal(io.StringIO):
    """Standard output or error as a terminal would be."""

    def isatty(self) -> bool:
        return True


def run_cli(*argv: str, terminal: bool = False, environment: Mapping[str, str] | None = None) -> tuple[int, str, str]:
    """(exit code, standard output, standard error) of `kafka-quotas ARGV`.

    `terminal` makes both streams look like terminals of 80 columns; `environment` is added to the process's own,
    from which settings of ours are taken out. What --output json prints has to follow its published schema.
    """
    out, err = (_Terminal(), _Terminal()) if terminal else (io.StringIO(), io.StringIO())
    with _environment(environment or {}), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(argv)
    check_output(argv, out.getvalue())
    return code, out.getvalue(), err.getvalue()


def done(*argv: str, **more: Any) -> str:
    """Standard output of `kafka-quotas ARGV`, which succeeds and says nothing on standard error."""
    code, out, err = run_cli(*argv, **more)
    assert (code, err) == (0, ""), (argv, code, err)
    return out


def printed(*argv: str, **more: Any) -> str:
    """Standard output of `kafka-quotas ARGV`, which succeeds, whatever it says on standard error."""
    code, out, err = run_cli(*argv, **more)
    assert code == 0, (argv, err)
    return out


def refused(*argv: str, code: int = 2, **more: Any) -> str:
    """Standard error of `kafka-quotas ARGV`, which ends with this exit code and prints nothing else."""
    found, out, err = run_cli(*argv, **more)
    assert (found, out) == (code, ""), (argv, err)
    return err


@contextlib.contextmanager
def _environment(added: Mapping[str, str]) -> Iterator[None]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_QUOTAS_")}
    fixed = {"COLUMNS": "80", "NO_COLOR": "1", "TERM": "xterm"}
    with mock.patch.dict("os.environ", kept | fixed | dict(added), clear=True):
        yield
