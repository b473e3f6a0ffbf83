"""Long responses that name brokers: changed in slices, within one budget with the requests, and no longer than that."""

import struct
import sys
from types import FrameType

import pytest
from tests.support.frames.enforcement import CLIENT_ID, Pair, framed, request, response
from tests.support.frames.whole_requests import FilterAll, RecordingFilter

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.enforcement.session.frames import SMALL_BYTES, GatherBudget
from kafka_quotas.wire.codec.skip import encode_unsigned_varint
from kafka_quotas.wire.proxying.broker_addresses import MAX_BROKERS, rewrite_addresses

FIND_COORDINATOR, PRODUCE, CREATE_TOPICS, DELETE_TOPICS = 10, 0, 19, 20
MANY = 6000


def find_coordinators(correlation_id: int) -> bytes:
    return request(FIND_COORDINATOR, 4, correlation_id, b"\0\0\2\2g\0")


def coordinators(correlation_id: int, count: int = MANY, *, key: bytes = b"\2g") -> bytes:
    each = key + struct.pack(">i", 1) + b"\5host" + struct.pack(">ih", 9092, 0) + b"\0\0"
    body = b"\0" + bytes(4) + encode_unsigned_varint(count + 1) + count * each + b"\0"
    return response(correlation_id, body)


def moved_partitions(correlation_id: int, count: int = MANY) -> bytes:
    """A response to a Produce of one topic whose leaders have moved to a broker, which it names (KIP-951)."""
    partition = struct.pack(">ihqqq", 0, 6, -1, -1, -1) + b"\1\0\0"
    node = struct.pack(">i", 1) + b"\5host" + struct.pack(">i", 9092) + b"\0\0"
    tag = b"\1\0" + encode_unsigned_varint(len(node) + 1) + b"\2" + node
    body = b"\0\2\2t" + encode_unsigned_varint(count + 1) + count * partition + b"\0" + bytes(4) + tag
    return response(correlation_id, body)


def local(node_id: int, _host: str, _port: int) -> tuple[str, int]:
    return "127.0.0.1", 20_000 + node_id


class SlicedPair(Pair):
    """A pair that does no slice of long work by itself."""

    def _collect(self) -> None:
        state = self.session.state
        self.client += b"".join(map(bytes, state.to_client))
        state.to_client.clear()
        self.upstream = b"".join(map(bytes, state.to_upstream))
        state.to_upstream.clear()

    def slices(self) -> list[int]:
        """The steps of each slice until the work is done."""
        found = []
        while self.session.state.is_working:
            count = 0

            def seen(_frame: FrameType, event: str, _argument: object) -> None:
                nonlocal count
                count += event in ("call", "c_call")

            before = sys.getprofile()
            sys.setprofile(seen)
            self.session.work(self.now_ms)
            sys.setprofile(before)
            found.append(count)
        self._collect()
        return found


@pytest.mark.parametrize(
    ("api", "asked", "answer"),
    [
        ((FIND_COORDINATOR, 4), find_coordinators(1), coordinators(1)),
        (
            (PRODUCE, 10),
            request(PRODUCE, 10, 1, b"\0\0" + struct.pack(">hi", 1, 30_000) + b"\1\0"),
            moved_partitions(1),
        ),
    ],
)
def test_a_long_response_is_changed_in_slices_and_the_next_waits_for_it(
    api: tuple[int, int], asked: bytes, answer: bytes
) -> None:
    pair = SlicedPair()
    pair.exchange(asked + request(12, 0, 2, b""), answer + response(2, bytes(2)))
    assert pair.client == b""
    assert pair.session.state.waiting_response_bytes == len(response(2, bytes(2))), "the broker is left unread"
    assert pair.session.pass_from_broker(response(2, bytes(2))) == 0
    slices = pair.slices()
    assert len(slices) > MANY // 200
    assert max(slices) < 3000, "no slice takes longer than others"
    assert pair.client == rewrite_addresses(*api, answer, local) + response(2, bytes(2))
    assert not pair.session.state.in_flight


def named(names: int, partitions: int) -> bytes:
    """A Metadata response of version 4 with topics that exist, as the daemon asks for."""
    partition = struct.pack(">hiiii", 0, 0, 1, 0, 0)
    topics = b"".join(
        struct.pack(">hh5s?i", 0, 5, b"%05d" % number, False, partitions) + partitions * partition
        for number in range(names)
    )
    return struct.pack(">iihii", 0, 0, -1, 1, names) + topics


def test_what_the_broker_says_of_thousands_of_topics_is_read_in_slices() -> None:
    pair = SlicedPair(quotas={QuotaType.CONTROLLER_MUTATION: 1e9}, has_topics=True)
    names = 2000
    content = b"".join(struct.pack(">h5s", 5, b"%05d" % number) for number in range(names))
    deleted = request(DELETE_TOPICS, 1, 1, struct.pack(">i", names) + content + struct.pack(">i", 1000))
    pair.exchange(deleted, response(1, named(names, 12)))
    slices = pair.slices()
    assert len(slices) > names // 30
    assert max(slices[:-1]) < 8000, "a millisecond or so"
    assert pair.upstream == deleted, "the request passes when all is read"


def test_a_response_that_breaks_off_within_a_slice_is_the_brokers() -> None:
    pair = SlicedPair()
    pair.exchange(find_coordinators(1), framed(coordinators(1)[4:-5]))
    with pytest.raises(ProtocolError) as error:
        pair.slices()
    sys.setprofile(None)
    assert error.value.sender == "upstream"


def test_more_brokers_than_any_cluster_has_are_refused_before_they_are_read() -> None:
    pair = SlicedPair()
    pair.send(find_coordinators(1))
    body = b"\0" + bytes(4) + encode_unsigned_varint(MAX_BROKERS + 2) + bytes(SMALL_BYTES)
    pair.answer(response(1, body))
    with pytest.raises(ProtocolError, match="names 100001 brokers") as error:
        pair.session.work(pair.now_ms)
    assert error.value.sender == "client", "which asked for them"


LONG = coordinators(1, key=encode_unsigned_varint(40) + b"g" * 39)


def test_responses_of_all_connections_wait_for_room_in_one_budget() -> None:
    budget = GatherBudget(len(LONG) * 3 // 2)
    one, other = Pair(gathering=budget), Pair(gathering=budget)
    for pair in (one, other):
        pair.send(find_coordinators(1))
    one.session.state.pause_responses()  # its client takes nothing
    one.answer(LONG)
    assert one.client, "is on its way, in the buffer of a client that does not read"
    assert budget.used_bytes == len(LONG)
    other.answer(LONG)
    assert other.client == b""
    assert other.session.state.waiting_response_bytes == len(LONG), "the broker is left unread"
    one.session.state.resume_responses(one.now_ms)
    one._collect()
    assert other._has_room
    other._collect()
    assert other.client == one.client
    assert budget.used_bytes == 0


def test_a_client_that_does_not_read_waits_for_its_own_room() -> None:
    budget = GatherBudget(10 * len(LONG))
    pair = Pair(gathering=budget)
    pair.send(find_coordinators(1) + find_coordinators(2))
    pair.session.state.pause_responses()
    second = LONG[:4] + struct.pack(">i", 2) + LONG[8:]
    pair.answer(LONG + second)
    assert budget.used_bytes == len(LONG), "no more than one response at a time"
    pair.session.state.resume_responses(pair.now_ms)
    pair._collect()
    assert pair.client == rewrite_addresses(10, 4, LONG, local) + rewrite_addresses(10, 4, second, local)
    assert budget.used_bytes == 0


def test_what_a_waiting_response_holds_is_returned_when_its_connection_ends() -> None:
    budget = GatherBudget(len(LONG))
    one, other = Pair(gathering=budget), Pair(gathering=budget)
    for pair in (one, other):
        pair.send(find_coordinators(1))
    one.session.state.pause_responses()
    one.answer(LONG)
    other.answer(LONG)
    other.session.end(other.now_ms)
    one.session.end(one.now_ms)
    assert budget.used_bytes == 0


def test_a_response_never_waits_for_a_request_of_its_own_connection() -> None:
    """The request may wait for that very response: both would wait for ever."""
    budget = GatherBudget(SMALL_BYTES * 3)
    factories = {CREATE_TOPICS: FilterAll(RecordingFilter())}
    pair = Pair(gathering=budget, factories=factories, entity=Entity.of(client_id=CLIENT_ID))
    pair.send(find_coordinators(1))
    start = request(CREATE_TOPICS, 4, 2, b"")
    pair.send(framed(start[4:] + bytes(SMALL_BYTES * 2))[:-1])
    assert budget.used_bytes > SMALL_BYTES * 2
    with pytest.raises(ProtocolError, match="no room") as error:
        pair.answer(LONG)
    assert error.value.sender == "client"
