"""A connection driven by a string of bytes: what the client sends, how it is cut, when who answers, and what must hold.

The first byte says who broker and client are. Then two bytes are a step: what is done, and how much of it. A byte that
is left at the end sets bounds: few requests in flight, and another connection that holds the memory for gathered
requests. Whatever they are, at every moment
- what reaches the broker is the client's frames, whole, in their order, with requests of the daemon's own between them;
- what reaches the client is one response for each request that has one, in the order of the requests;
- nothing of a request behind one that went over a quota reaches the broker before the client was told its throttle
  time and that is over (for acks=0: before it is over);
and in the end every byte that the broker took was charged to whom the broker took it from (see `authenticator_model`),
and nothing else was; and the daemon ended no connection that the broker alone would not have ended.
"""

import struct
from collections.abc import Callable
from functools import partial

from tests.support.frames.authenticator_model import (
    ANONYMOUS,
    CREATE_TOPICS,
    FETCH,
    KERBEROS,
    METADATA,
    PRODUCE,
    SHARE_FETCH,
    Broker,
    Served,
    share_fetch_answer,
)
from tests.support.frames.client_messages import CODES, LARGE_BYTES, Sent, messages
from tests.support.frames.enforcement import Pair, request, set_limit
from tests.support.frames.whole_requests import FilterAll, RecordingFilter

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.enforcement.config.rules import UNKNOWN_PRINCIPAL, ThrottleStyle
from kafka_quotas.enforcement.event_log.charges import Charge
from kafka_quotas.enforcement.session.filters import Verdict
from kafka_quotas.enforcement.session.frames import GatherBudget
from kafka_quotas.enforcement.session.in_flight import InFlightRequest

LIMIT = 1000.0
MAX_IN_FLIGHT = 1000
MUTATION_MS = 700
"""How long the client waits for each CreateTopics."""
QUESTION_BODY = bytes(4)
"""What a Metadata of no topic has behind its header; the client's own name one."""


class AsksFirst(RecordingFilter):
    """Asks the broker for something before every request, and makes the client wait for it as permissive quotas do."""

    def __init__(self) -> None:
        super().__init__(throttle_at_response_ms=MUTATION_MS)
        self._was_asked = False

    def on_request(self, frame: bytearray, pending: InFlightRequest, now_ms: int) -> Verdict:
        """The question, then the request."""
        self._was_asked = not self._was_asked
        if self._was_asked:
            return Verdict(request(METADATA, 1, pending.correlation_id, QUESTION_BODY), is_own=True)
        return Verdict(frame)


class Trace:
    """One connection and what was seen of it. Raises `AssertionError` where something does not hold."""

    def __init__(self, data: bytes, *, is_fast: bool = True) -> None:
        head, bounds = (data[0] if data else 0), (data[-1] if data and len(data) % 2 == 0 else 0)
        budget = GatherBudget(1000)
        self._others_memory = budget.share()
        self._holds_memory = bool(bounds & 2)
        style = ThrottleStyle.DELAY if head & 1 else ThrottleStyle.MUTE
        self._listens_for_sasl = bool(head & 2) and bool(head & 4)
        self.broker = Broker(requires_sasl=bool(head & 2), reauthenticates=bool(head & 8))
        self.direct = Broker(requires_sasl=bool(head & 2), reauthenticates=bool(head & 8), sizes=self.broker.sizes)
        self.charges: list[Charge] = []
        self.pair = Pair(
            throttle_style=style,
            requires_authentication=self._listens_for_sasl,
            max_in_flight=3 if bounds & 1 else MAX_IN_FLIGHT,
            gathering=budget,
            factories={CREATE_TOPICS: FilterAll(AsksFirst())},
            on_charge=self.charges.append if head & 128 else None,
            is_fast=is_fast,
            is_served=False,
        )
        self._tells = bool(head & 128)
        self._has_memory = False
        self.pair.session.gathering.on_room = self._found_memory
        self._share_memory()
        for quota_type, bit in ((QuotaType.PRODUCE, 16), (QuotaType.FETCH, 32), (QuotaType.REQUEST_RATE, 64)):
            limit = 1.0 if quota_type is QuotaType.REQUEST_RATE else LIMIT
            for user in ("alice", "mallory", "ANONYMOUS", UNKNOWN_PRINCIPAL):
                if head & bit:
                    set_limit(self.pair.broker, quota_type, Entity.of(user=user), limit)
        self.sent: list[Sent] = []
        self.refused = False
        self._unsent = b""
        self._undelivered = b""
        self._begun = 0
        self._passed_bytes = 0
        self._answered_bytes = 0
        self._awaiting: list[Sent] = []
        self._is_in_fetch = False
        self._blocks: list[tuple[int, int]] = []
        self._tail = b""
        self._run(data[1:])

    # Steps.

    def _run(self, data: bytes) -> None:
        number = 1
        for code, size in zip(data[::2], data[1::2], strict=False):
            if self.refused:
                break
            if code < 128:
                for frame, is_token in messages(code % CODES, number, size):
                    self.sent.append(Sent(frame, number, is_token=is_token))
                    self.broker.sizes[number] = 60 + 16 * size
                    self._unsent += frame
                    number += 1
            else:
                self._step(code, size)
        self._finish()

    def _step(self, code: int, size: int) -> None:
        session = self.pair.session
        match code % 8:
            case 0 | 1:
                self._send(1 + size * size // 8)
            case 2:
                self._send(len(self._unsent))
            case 3:
                self._answer_one()
            case 4:
                self._deliver(1 + size * size // 8)
            case 5:
                self._act(lambda: self.pair.advance(size * 8))
                self._share_memory()
            case 6:
                (session.state.pause_requests if size % 2 else session.state.pause_responses)()
            case _:
                resume = session.state.resume_requests if size % 2 else session.state.resume_responses
                self._act(lambda: (resume(self.pair.now_ms), self.pair._collect()))

    def _share_memory(self) -> None:
        """Let the other connection give its memory back if it has some, else let it want some."""
        if self._others_memory.length:
            self._free_memory()
        elif self._holds_memory:
            self._others_memory.take(LARGE_BYTES, self.pair.now_ms)

    def _free_memory(self) -> None:
        self._others_memory.end(self.pair.now_ms)
        if self._has_memory:
            self._has_memory = False
            self._act(lambda: (self.pair.session.state.resume_gathering(self.pair.now_ms), self.pair._collect()))

    def _found_memory(self) -> None:
        self._has_memory = True

    def _send(self, count: int) -> None:
        """Take a number of bytes from the client, unless it is left unread."""
        state = self.pair.session.state
        if state.waiting_request_bytes or state.upstream_is_full:
            return
        data, self._unsent = self._unsent[:count], self._unsent[count:]
        if data:
            self._act(lambda: self.pair.send(data))

    def _answer_one(self) -> None:
        answer = self.broker.step()
        if answer is not None:
            self._undelivered += answer

    def _deliver(self, count: int) -> None:
        """Take a number of bytes from the broker, unless it is left unread."""
        state = self.pair.session.state
        if state.waiting_response_bytes or state.client_is_full:
            return
        data, self._undelivered = self._undelivered[:count], self._undelivered[count:]
        if data:
            self._act(lambda: self.pair.answer(data))

    def _act(self, action: Callable[[], object]) -> None:
        """Look at what the session did, and end the connection where it refuses."""
        try:
            action()
        except ProtocolError:
            self.refused = True
            self.pair._collect()
            self.pair.session.state.close()
        self._look()

    def _finish(self) -> None:
        """Let the client send all, the broker answer all, and all throttle times end."""
        state = self.pair.session.state
        self._act(lambda: (state.resume_requests(self.pair.now_ms), self.pair._collect()))
        self._act(lambda: (state.resume_responses(self.pair.now_ms), self.pair._collect()))
        seen: tuple[int, ...] = ()
        self._holds_memory = False
        while not self.refused and seen != (seen := self._progress()):
            self._free_memory()
            self._send(len(self._unsent))
            self._answer_one()
            self._deliver(len(self._undelivered))
            if state.wake_at_ms is not None and (state.is_delaying or not self._undelivered):
                until_ms = state.wake_at_ms - self.pair.now_ms
                self._act(partial(self.pair.advance, until_ms))
        self._check_end()

    def _progress(self) -> tuple[int, ...]:
        waiting = (len(self._unsent), len(self.broker.received), len(self._undelivered))
        return (*waiting, len(self.pair.upstream), len(self.pair.client), self.pair.now_ms)

    # What must hold at every moment.

    def _look(self) -> None:
        self._look_upstream()
        self._look_at_client()
        now_ms = self.pair.now_ms
        self._blocks = [(until_ms, last) for until_ms, last in self._blocks if until_ms > now_ms]
        for until_ms, last in self._blocks:
            assert self._begun <= last, f"request {self._begun} began {until_ms - now_ms} ms too early"

    def _look_upstream(self) -> None:
        """Check that the broker gets the client's frames in their order, and whole ones of the daemon's."""
        new = self.pair.upstream[self._passed_bytes :]
        self._passed_bytes += len(new)
        self.broker.take(new)
        self._tail += new
        while self._tail:
            if len(self._tail) < 22 and not self._begins(self._tail):
                break
            if self._is_own(self._tail):
                self._tail = self._tail[4 + struct.unpack_from(">i", self._tail)[0] :]
                continue
            assert self._begun < len(self.sent), f"{self._tail[:40]!r} was never sent"
            due = self.sent[self._begun]
            length = len(due.frame)
            seen = self._tail[:length]
            assert _alike(due, seen), f"{seen[:40]!r} instead of {due.frame[:40]!r}"
            if len(seen) < length:
                break
            self._tail = self._tail[length:]
            self._passed(due)
        else:
            return
        if self._tail and not self._is_own(self._tail) and self._begins(self._tail):
            now_ms = self.pair.now_ms
            for until_ms, last in self._blocks:
                assert until_ms <= now_ms or self._begun < last, "a request began too early"

    def _begins(self, data: bytes) -> bool:
        return self._begun < len(self.sent) and _alike(
            self.sent[self._begun], data[: len(self.sent[self._begun].frame)]
        )

    @staticmethod
    def _is_own(data: bytes) -> bool:
        name = 12 + 2 + 3
        return len(data) >= name + 4 and data[4:8] == b"\0\x03\0\x01" and data[name : name + 4] == QUESTION_BODY

    def _passed(self, due: Sent) -> None:
        self._begun += 1
        if not due.is_silent:
            self._awaiting.append(due)

    def _look_at_client(self) -> None:
        """Check that the client gets whole responses, or the beginning of one, in the order of the requests."""
        while True:
            rest = self.pair.client[self._answered_bytes :]
            if len(rest) < 4:
                break
            end = 4 + struct.unpack_from(">i", rest)[0]
            is_fetch = bool(self._awaiting) and self._awaiting[0].api_key in (FETCH, SHARE_FETCH)
            if is_fetch and len(rest) >= 13 and not self._is_in_fetch:
                self._is_in_fetch = True  # its throttle time counts from its head, as it does in a broker
                self._told(self._awaiting[0], rest)
            if len(rest) < end:
                break
            self._answered_bytes += end
            self._answered(rest[:end])
            self._is_in_fetch = False

    def _answered(self, answer: bytes) -> None:
        while True:
            assert self._awaiting, f"{answer[:20]!r} answers nothing"
            asked = self._awaiting.pop(0)
            if not asked.is_token:
                break
            if answer[4:8] != struct.pack(">i", self._awaiting[0].number if self._awaiting else -1):
                return  # an answer without a header, to a token; Kerberos' last has none
        assert struct.unpack_from(">i", answer, 4)[0] == asked.number, f"{answer[:20]!r} instead of {asked.number}"
        if asked.api_key not in (FETCH, SHARE_FETCH):
            self._told(asked, answer)

    def _told(self, asked: Sent, answer: bytes) -> None:
        told_ms = asked.told_ms(answer)
        # A response that was held back for its throttle time says so only where clients don't wait by themselves.
        was_delayed = self.pair.rules.throttle_style is ThrottleStyle.DELAY and asked.api_key == SHARE_FETCH
        if told_ms and not was_delayed:
            at = next(index for index, sent in enumerate(self.sent, 1) if sent is asked)
            until_ms = self.pair.now_ms + (told_ms if self.pair.rules.throttle_style is ThrottleStyle.MUTE else 0)
            assert self._begun <= at, f"request {self._begun} passed behind {at}, which went over a quota"
            self._blocks.append((until_ms, at))

    # What must hold in the end.

    def _check_end(self) -> None:
        for sent in self.sent:
            self.direct.take(sent.frame)
        for broker in (self.direct, self.broker):  # what was passed on reaches the broker, whatever ends the connection
            while broker.step() is not None:
                pass
        served = [
            each for each in self.broker.served if each.frame[4:8] != b"\0\x03\0\x01" or not self._is_own(each.frame)
        ]
        expected = [(each.principal, each.correlation_id) for each in self.direct.served]
        through = [(each.principal, each.correlation_id) for each in served]
        assert through == expected[: len(through)], f"{through} through the daemon, {expected} without it"
        if self.refused:
            # Kerberos' bare tokens can't be told from responses where a client doesn't wait for the answers to them.
            is_bare = any(sent.is_token and b"\x60" in sent.frame for sent in self.sent)
            is_bad = self.direct.is_closed or self._listens_for_sasl or is_bare
            assert is_bad, "refused what the broker would have served"
        elif not self.broker.is_closed:
            assert len(through) == len(expected), f"{len(expected) - len(through)} requests were never served"
        if self._tells:
            self._check_charges()

    def _check_charges(self) -> None:
        produced = [
            (_user(each.principal), len(each.frame) - 4) for each in self.broker.served if each.api_key == PRODUCE
        ]
        charged = [
            (user, int(amount))
            for _, user, _, quota_type, _, amount, *_ in self.charges
            if quota_type is QuotaType.PRODUCE
        ]
        assert charged == produced, f"charged {charged}, taken by the broker {produced}"
        fetched = [
            (_user(each.principal), self._charged_bytes(each))
            for each in self.broker.served
            if each.api_key in (FETCH, SHARE_FETCH)
        ]
        counted = [
            (user, int(amount))
            for _, user, _, quota_type, _, amount, *_ in self.charges
            if quota_type is QuotaType.FETCH and amount > 0  # what is not delivered is given back
        ]
        assert counted == fetched[: len(counted)], f"charged {counted}, sent by the broker {fetched}"
        if not self.refused:
            assert len(counted) == len(fetched)

    def _charged_bytes(self, served: Served) -> int:
        size = self.broker.sizes[served.correlation_id]
        return max(size, 12) - 4 if served.api_key == FETCH else len(share_fetch_answer(0, size)) - 5

    def outcome(self) -> tuple[object, ...]:
        """All that can be seen of the connection."""
        session = self.pair.session
        throttles = {
            bucket: (count.times, count.total_ms)
            for (_, bucket), count in self.pair.throttle_stats.set_here.by_bucket.items()
        }
        state, principal = session.state, session.tracker.principal
        seen = (self.pair.upstream, self.pair.client, state.phase, principal, state.request_count)
        return *seen, throttles, self.charges, self.pair.now_ms, self.refused


def _alike(due: Sent, seen: bytes) -> bool:
    """Whether bytes are the first of a frame.

    The limits of a fetch and its wait are lowered in passing.
    """
    start, end = {FETCH: (17, 33), SHARE_FETCH: (26, 38)}.get(due.api_key, (0, 0))
    return due.frame[:start].startswith(seen[:start]) and due.frame[end:].startswith(seen[end:])


def _user(principal: str) -> str:
    return {ANONYMOUS: "ANONYMOUS", KERBEROS: UNKNOWN_PRINCIPAL}.get(principal, principal.removeprefix("User:"))
