"""Single keys from a terminal."""

import io
import os
import termios

from kafka_quotas.cli.insight.top import typed_keys


def test_a_key_needs_no_enter_and_the_terminal_is_as_before_afterwards() -> None:
    controller, terminal = os.openpty()
    with os.fdopen(controller, "wb", buffering=0) as typed, os.fdopen(terminal, encoding="utf-8") as stream:
        before = termios.tcgetattr(stream)
        with typed_keys(stream) as next_key:
            assert next_key(0) is None
            typed.write(b"sq")
            assert [next_key(5), next_key(5)] == ["s", "q"]
        assert termios.tcgetattr(stream) == before


def test_no_terminal_has_no_keys() -> None:
    with typed_keys(io.StringIO("q")) as next_key:
        assert next_key(0) is None
