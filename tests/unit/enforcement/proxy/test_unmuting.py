"""Ending throttle times by hand: who is let go, and that what was measured stays."""

import asyncio
import json
from dataclasses import replace

import pytest
from tests.support.daemon.decision_desk import Desk
from tests.support.frames.enforcement import Pair, produce, produce_response
from tests.support.processes.run_cli import run_cli

from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.core.resolution.effective import QuotaClient
from kafka_quotas.enforcement.config.rules import ANONYMOUS
from kafka_quotas.enforcement.control.server import ControlHandler
from kafka_quotas.enforcement.proxy.proxy_server import Unmuted, UnmutedClient, is_of, unmuted_clients
from kafka_quotas.enforcement.telemetry.status import answer_from_json


def muted() -> Pair:
    """A session whose client waits: it sent three times its limit of a second."""
    pair = Pair(quotas={QuotaType.PRODUCE: 1000.0})
    pair.exchange(produce(1, size=9000), produce_response(1))
    assert pair.session.state.mute is not None
    return pair


def test_a_client_that_is_let_go_is_read_at_once_and_waits_again_after_its_next_request() -> None:
    pair = muted()
    pair.send(produce(2, size=500))
    before = len(pair.upstream)
    pair.session.state.unmute(pair.now_ms)
    pair.send(b"")
    assert len(pair.upstream) == before + 500, "what it had sent meanwhile passes"
    pair.answer(produce_response(2))
    assert pair.session.state.mute is not None, "the bucket is what it was"


def test_a_client_that_does_not_wait_is_not_touched() -> None:
    pair = Pair(quotas={QuotaType.PRODUCE: 1000.0})
    pair.session.state.unmute(pair.now_ms)
    pair.send(produce(1, size=500))
    assert len(pair.upstream) == 500


def test_who_is_meant_is_told_by_either_name_or_both() -> None:
    mute = muted().session.state.mute
    assert mute is not None
    chosen = [
        QuotaClient(client_id="app"),
        QuotaClient(user=ANONYMOUS),
        QuotaClient(user=ANONYMOUS, client_id="app"),
    ]
    others = [QuotaClient(client_id="ap"), QuotaClient(user="alice"), QuotaClient(user="alice", client_id="app")]
    assert [is_of(choice, mute) for choice in chosen + others] == [True] * 3 + [False] * 3


def test_connections_of_one_client_are_one_row_with_the_longest_wait() -> None:
    pairs = [muted(), muted()]
    mutes = [pair.session.state.mute for pair in pairs if pair.session.state.mute is not None]
    mutes[1] = replace(mutes[1], until_ms=mutes[0].until_ms + 500)
    rows = unmuted_clients([(1, mutes[0]), (1, mutes[1]), (None, mutes[0])], mutes[0].until_ms + 100)
    quota = QuotaType.PRODUCE.key.name
    assert [(row.user, row.client_id, row.quota) for row in rows] == [(ANONYMOUS, "app", quota)] * 2
    assert [(row.broker, row.connections, row.remaining_ms) for row in rows] == [("1", 2, 400), ("bootstrap", 1, 0)]


def test_the_socket_lets_the_owner_end_throttle_times_and_nobody_else() -> None:
    asked: list[QuotaClient] = []
    row = UnmutedClient(
        user="alice", client_id="app", broker="1", quota="producer_byte_rate", connections=2, remaining_ms=700
    )

    async def unmute(choice: QuotaClient) -> Unmuted:
        asked.append(choice)
        return Unmuted(unmuted=(row,))

    desk = ControlHandler(status=_never, decide=Desk().decider.decide, reload=_never, unmute=unmute, groups=_never)
    line = b'{"op":"unmute","client_id":"app","id":7}'
    answer = asyncio.run(desk.answer_line(line, may_reload=True))
    assert json.loads(answer)["id"] == 7
    assert answer_from_json(Unmuted, json.loads(answer)) == Unmuted(unmuted=(row,))
    refused = asyncio.run(desk.answer_line(line, may_reload=False))
    assert json.loads(refused) == {"ok": False, "error": "only the daemon's own user may end throttle times", "id": 7}
    assert asked == [QuotaClient(client_id="app")]


@pytest.mark.parametrize("names", ["", ',"client_id":7', ',"user":["alice"]'])
def test_a_question_that_names_nobody_is_refused(names: str) -> None:
    desk = ControlHandler(status=_never, decide=Desk().decider.decide, reload=_never, unmute=_never, groups=_never)
    answer = asyncio.run(desk.answer_line(f'{{"op":"unmute"{names}}}'.encode(), may_reload=True))
    assert json.loads(answer) == {"ok": False, "error": "unmute names a user, a client_id, or both"}


def test_the_command_wants_a_name() -> None:
    code, out, err = run_cli("daemon", "unmute", "--control", "/nowhere.sock")
    assert (code, out) == (2, "")
    assert "name a --client, a --user, or both" in err


def _never(*asked: object) -> object:
    raise AssertionError(f"nobody asked for that: {asked}")
