"""The start of the program, before its commands are there."""

import sys
from collections.abc import Sequence

import pytest

from kafka_quotas.cli.start import main

COMMANDS = "kafka_quotas.cli.main"


class _InterruptedImport:
    """Finds modules as a person finds them who presses Ctrl-C meanwhile."""

    def find_spec(self, name: str, _path: Sequence[str] | None = None, _target: object = None) -> None:
        if name == COMMANDS:
            raise KeyboardInterrupt


def test_ctrl_c_while_modules_are_loaded_is_an_interrupt_like_any_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, COMMANDS, raising=False)
    monkeypatch.setattr(sys, "meta_path", [_InterruptedImport(), *sys.meta_path])
    assert main() == 130
    assert capsys.readouterr().err == ""
