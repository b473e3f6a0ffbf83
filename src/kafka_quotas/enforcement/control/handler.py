"""The responses on the daemon's Unix socket, whichever form the request had.

Contract: `{"op": "status"}` is answered with `{"ok": true, "status": {...}}`, `{"op": "reload"}` with its result once
that is known, `{"op": "unmute", "client_id": "app"}` (or `user`, or both) with the clients that were let go,
`{"op": "upgrade"}` leaves the connection to the upgrade,
requests about quotas as `docs/reference/decision-api.md` describes, anything else with
`{"ok": false, "error": "..."}`. An `id` in a request is in its response.
"""

import json
import socket
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeAlias

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.formats.documents import load_json
from kafka_quotas.enforcement.decisions import binary_codec as decision_binary
from kafka_quotas.enforcement.decisions import json_codec as decision_json
from kafka_quotas.enforcement.decisions.messages import PROTOCOL_VERSION, Decision, DecisionError, DecisionRequest
from kafka_quotas.enforcement.quotas.reload import Reloaded
from kafka_quotas.enforcement.session.unmute import ClientChoice, Unmuted
from kafka_quotas.enforcement.telemetry.log import error_text
from kafka_quotas.enforcement.telemetry.status import DaemonStatus, run_sliced, status_text

_OPS: Final = "status, reload, unmute, upgrade (version 1), record, check, unrecord, batch"
_OWNERS_OPS: Final = {"reload": "reload it", "unmute": "end throttle times", "upgrade": "take its place"}
"""Operations that only the daemon's own user and root may request."""

UPGRADE_REQUEST: Final = b'{"op": "upgrade", "v": 1}\n'
"""What a successor sends first; the version is that of all that follows."""

Answer: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlHandler:
    """The responses to requests on the control socket, in lines and in frames."""

    status: Callable[[], Awaitable[DaemonStatus]]
    decide: Callable[[DecisionRequest], Decision | DecisionError]
    reload: Callable[[], Awaitable[Reloaded]]
    unmute: Callable[[ClientChoice], Awaitable[Unmuted]]
    upgrade: Callable[[socket.socket], None]
    """Takes over a connection whose peer wants to take the daemon's place."""

    def is_upgrade(self, line: bytes) -> bool:
        """Return whether a line requests an upgrade, which no response in a line can answer."""
        return line.strip() == UPGRADE_REQUEST.strip()

    def answer_line(self, line: bytes, *, may_reload: bool) -> bytes | Awaitable[bytes]:
        """Return the response to one line, with its line break.

        `may_reload` lets the peer reload and unmute, as the daemon's owner may.

        Returns:
            The response, to be awaited for what concerns other processes or takes its time.
        """
        try:
            message = load_json(line)
        except ValueError:
            return _line({"ok": False, "error": "not JSON"})
        if not isinstance(message, dict):
            return _line({"ok": False, "error": "not an object"})
        number = {"id": message["id"]} if "id" in message else {}
        op = message.get("op")
        if isinstance(op, str) and op in _OWNERS_OPS and not may_reload:
            return _line({"ok": False, "error": f"only the daemon's own user may {_OWNERS_OPS[op]}", **number})
        match op:
            case "reload":
                answer: bytes | Awaitable[bytes] = self._answer_reload(number)
            case "status":
                answer = self._answer_status(number)
            case "unmute":
                answer = self._answer_unmute(message, number)
            case _:
                answer = _line(self._answer(message) | number)
        return answer

    def answer_frame(self, data: bytes | bytearray, start: int, end: int) -> bytes:
        """Return the response to one frame of the binary form.

        Raises:
            ProtocolError: The frame does not fit its requests.
        """
        number, requests = decision_binary.read_requests(data, start, end)
        return decision_binary.write_decisions(number, [self._decision(request) for request in requests])

    def _decision(self, request: DecisionRequest | DecisionError) -> Decision | DecisionError:
        return request if isinstance(request, DecisionError) else self.decide(request)

    def _answer(self, message: Answer) -> Answer:
        op = message.get("op")
        if not decision_json.is_decision(op):
            return {"ok": False, "error": f"unknown request; those there are: {_OPS}"}
        try:
            decision_json.read_version(message)
            requests = decision_json.read_requests(message)
        except DecisionError as error:
            return {"ok": False, "error": error.message}
        answers = [_decision_answer(self._decision(request)) for request in requests]
        answer = {"answers": answers, "ok": True} if op == decision_json.BATCH else answers[0]
        return {"v": PROTOCOL_VERSION, **answer}

    async def _answer_unmute(self, message: Answer, number: Answer) -> bytes:
        user, client_id = message.get("user"), message.get("client_id")
        if (user is None and client_id is None) or not all(isinstance(name, str | None) for name in (user, client_id)):
            return _line({"ok": False, "error": "unmute names a user, a client_id, or both", **number})
        unmuted = await self.unmute(ClientChoice(user=user, client_id=client_id))
        return _line({"ok": True, **asdict(unmuted), **number})

    async def _answer_status(self, number: Answer) -> bytes:
        status = await self.status()
        text = await run_sliced(status_text(status))
        return _line({"ok": True, **number})[:-2] + b',"status":' + text.encode() + b"}\n"

    async def _answer_reload(self, number: Answer) -> bytes:
        try:
            result = await self.reload()
        except KafkaQuotasError as error:
            return _line({"ok": False, "error": error.message, "hint": error.hint, **number})
        except Exception as error:  # noqa: BLE001 - the peer gets a response in any case
            return _line({"ok": False, "error": error_text(error), **number})
        return _line({"ok": True, "reloaded": asdict(result), **number})


def _decision_answer(decided: Decision | DecisionError) -> Answer:
    if isinstance(decided, DecisionError):
        return {"ok": False, "error": decided.message}
    return {"ok": True, **decision_json.write_decision(decided)}


def _line(answer: Answer) -> bytes:
    return json.dumps(answer, separators=(",", ":")).encode() + b"\n"
