"""A short exchange between a client and a broker in memory, byte for byte known: Metadata, Produce twice, Fetch.

The second Produce wants no answer, and goes out together with the Fetch.
"""

import socket
import struct
from dataclasses import dataclass

from tests.support.brokers.fake_broker import receive, receive_frame
from tests.support.frames.enforcement import fetch, fetch_response, produce, produce_response, request, response

from kafka_quotas.core.model.api_key import ApiKey

METADATA, PRODUCE, FETCH = ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.FETCH
CLIENT_ID_LENGTH = 6
PRODUCED, FETCHED, PRODUCED_UNANSWERED = 80, 60, 70
"""Lengths of frames, length fields included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What is written at once, and the length of the answer that is waited for."""

    data: bytes
    produced: int
    """Bytes of it that a producer's quota is charged with."""
    answer: int


def steps(client_id: str) -> tuple[Step, ...]:
    """Return what a client writes, its name being of `CLIENT_ID_LENGTH`."""
    assert len(client_id) == CLIENT_ID_LENGTH
    metadata = request(METADATA, 1, 1, struct.pack(">i", 0), client_id=client_id)
    first = produce(2, size=PRODUCED, client_id=client_id)
    second = produce(3, size=PRODUCED_UNANSWERED, acks=0, client_id=client_id)
    return (
        Step(data=metadata, produced=0, answer=len(metadata_response(1, 1))),
        Step(data=first, produced=PRODUCED - 4, answer=len(produce_response(2))),
        Step(data=second + fetch(4, client_id=client_id), produced=PRODUCED_UNANSWERED - 4, answer=FETCHED),
    )


def metadata_response(correlation_id: int, port: int) -> bytes:
    """A Metadata response of version 1 with one broker and no topic."""
    host = b"127.0.0.1"
    broker = struct.pack(">ih", 1, len(host)) + host + struct.pack(">ih", port, -1)
    return response(correlation_id, struct.pack(">i", 1) + broker + struct.pack(">ii", 1, 0))


def converse(sock: socket.socket, client_id: str) -> int:
    """Go through the steps and return how many were answered before the connection ended, if it did."""
    done = 0
    try:
        for step in steps(client_id):
            sock.sendall(step.data)
            receive(sock, step.answer)
            done += 1
    except ConnectionError:
        pass
    return done


def answer(connection: socket.socket) -> None:
    """Answer as a broker does, at the address that the connection came to.

    Anything else gets an empty body.
    """
    port = connection.getsockname()[1]
    while True:
        frame = receive_frame(connection)
        key, _, correlation_id = struct.unpack_from(">hhi", frame, 4)
        if key == METADATA:
            connection.sendall(metadata_response(correlation_id, port))
        elif key == FETCH:
            connection.sendall(fetch_response(correlation_id, size=FETCHED))
        elif key != PRODUCE:
            connection.sendall(response(correlation_id, b""))
        elif correlation_id != 3:
            connection.sendall(produce_response(correlation_id))
