"""The control socket itself: how many may connect to it."""

import asyncio
import json
from pathlib import Path

import pytest
from tests.support.daemon.decision_desk import Desk

from kafka_quotas.enforcement.control import server
from kafka_quotas.enforcement.control.server import ControlServer

TIMEOUT_S = 60.0
CHECK = json.dumps({"op": "check", "type": "produce", "client_id": "app"}).encode() + b"\n"


async def answer(path: Path) -> tuple[dict[str, object], asyncio.StreamWriter]:
    """The response to a request on a connection of its own, which stays open."""
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(CHECK)
    return json.loads(await reader.readline()), writer


def test_a_connection_too_many_is_refused_and_takes_no_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 2)
    path = tmp_path / "control.sock"

    async def test() -> None:
        control = ControlServer(path, Desk().desk)
        await control.start()
        kept = []
        for _ in range(2):
            answered, connection = await answer(path)
            assert answered["ok"], answered
            kept.append(connection)
        for _ in range(3):
            reader, surplus = await asyncio.open_unix_connection(path)
            assert json.loads(await reader.read()) == {"ok": False, "error": "too many connections"}
            surplus.close()
        kept.pop().close()
        answered = {"ok": False}
        while not answered["ok"]:  # until the daemon has noticed the end of the other
            answered, connection = await answer(path)
            kept.append(connection)
        await control.close()
        for connection in kept:
            connection.close()

    asyncio.run(asyncio.wait_for(test(), TIMEOUT_S))
