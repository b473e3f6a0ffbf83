"""A removed command or option is answered with what to use instead."""

import shlex

import pytest
from tests.support.processes.run_cli import run_cli

from kafka_quotas.cli.framework.removed import REMOVED


@pytest.mark.parametrize("words", REMOVED)
def test_it_is_answered_with_what_to_use_instead(words: str) -> None:
    typed = shlex.split(words.removeprefix("kafka-quotas "))
    code, out, err = run_cli(*(["alter", *typed] if words.startswith("--") else typed))
    kind = "option: " if typed[-1].startswith("-") else "command "
    assert (code, out) == (2, "")
    assert err.splitlines() == [err.splitlines()[0], f"hint: {REMOVED[words]}"]
    assert err.startswith(f"error: no such {kind}")
