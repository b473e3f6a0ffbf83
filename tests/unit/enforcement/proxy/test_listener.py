"""A TLS context that follows its files, on a virtual clock."""

import ssl
from pathlib import Path

import pytest

from kafka_quotas.core.clock import VirtualClock
from kafka_quotas.core.errors import UsageError
from kafka_quotas.enforcement.proxy.brokers import LOOK_MS, ReloadingTlsContext
from kafka_quotas.enforcement.telemetry.log import LogEvent


class Kept:
    """A keeper of one file, what was made of it, and what it said."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.clock = VirtualClock(0)
        self.notices: list[LogEvent] = []
        self.made: list[ssl.SSLContext] = []
        file.write_text("first")
        self.keeper = ReloadingTlsContext(self._make, [file], clock=self.clock, notify=self.notices.append)

    def context(self, *, after_ms: int = LOOK_MS) -> ssl.SSLContext:
        self.clock.advance(after_ms)
        return self.keeper.context

    def _make(self) -> ssl.SSLContext:
        if not self.file.exists() or self.file.read_text() == "broken":
            raise UsageError("no certificate")
        self.made.append(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        return self.made[-1]


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path / "server.pem")


def test_files_that_stay_are_read_once(kept: Kept) -> None:
    assert [kept.context() for _ in range(5)] == kept.made * 5
    assert kept.notices == []


def test_a_change_is_seen_after_a_second_at_most(kept: Kept) -> None:
    kept.file.write_text("the second")
    assert kept.context(after_ms=LOOK_MS - 1) is kept.made[0]
    assert kept.context(after_ms=1) is kept.made[1]
    assert [notice.event for notice in kept.notices] == ["certificates read again"]


def test_what_cannot_be_used_is_said_once_and_the_old_one_stays(kept: Kept) -> None:
    kept.file.write_text("broken")
    assert [kept.context() for _ in range(3)] == kept.made * 3
    assert len(kept.notices) == 1
    kept.file.unlink()
    assert kept.context() is kept.made[0]
    assert len(kept.notices) == 2
    kept.file.write_text("the third")
    assert kept.context() is kept.made[1]


def test_what_cannot_be_used_at_the_start_is_an_error(tmp_path: Path) -> None:
    def make() -> ssl.SSLContext:
        raise UsageError("no key")

    with pytest.raises(UsageError, match="no key"):
        ReloadingTlsContext(make, [tmp_path / "missing"], clock=VirtualClock(0), notify=lambda _: None)
