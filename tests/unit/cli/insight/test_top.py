"""Single keys from a terminal."""

import io
import os
import termios

from kafka_quotas.cli.insight.top import Keyboard


def test_a_key_needs_no_enter_and_the_terminal_is_as_before_afterwards() -> None:
    controller, terminal = os.openpty()
    with os.fdopen(controller, "wb", buffering=0) as typed, os.fdopen(terminal, encoding="utf-8") as stream:
        before = termios.tcgetattr(stream)
        with Keyboard(stream) as keyboard:
            assert keyboard.key(0) is None
            typed.write(b"sq")
            assert [keyboard.key(5), keyboard.key(5)] == ["s", "q"]
        assert termios.tcgetattr(stream) == before


def test_no_terminal_has_no_keys() -> None:
    with Keyboard(io.StringIO("q")) as keyboard:
        assert keyboard.key(0) is None
