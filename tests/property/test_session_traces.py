"""Random mixed traffic through a session on the virtual clock, held against a model of the broker's authenticator.

`connection_trace` says what must hold; `fuzz/session_traces.py` runs the same for as long as is wanted.
"""

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.daemon.connection_trace import Trace

traces = st.binary(min_size=3, max_size=120)
FETCH_BEFORE_PRODUCE = bytes.fromhex("90 06ff 00ff 00ff 8200 8300 84ff 8300 84ff 8300 84ff 8300 84ff")
"""Two Produces over the quota behind a Fetch without one: the Fetch's response freed the client."""
HANDSHAKE_BEHIND_TOKEN = bytes.fromhex("9a 0c01 1201 0004 0004 8200")
"""A handshake in one write with the token in front of it took the client's name away."""
OTHER_NAME_BEHIND_FETCHES = bytes.fromhex("9a 0c01 8200 8300 84ff 8300 84ff 0601 0601 0c01 0c05 0004 8200")
"""mallory, then alice with a wrong password: mallory became alice."""
REFUSED_MECHANISM = bytes.fromhex("9e 1202 0004 8200")
"""A handshake that the broker refused opened a listener for SASL."""
WITHOUT_LOGIN = bytes.fromhex("92 0004 0004 8200")
"""A Produce to a broker that wants SASL, by one who never authenticates, was charged."""
REFUSED_AGAIN = bytes.fromhex("da 0c02 1202 0502 0f01 8200")
"""A mechanism that the broker refuses when a client authenticates again ends the connection."""

MEMORY_HELD = bytes.fromhex("00 0004 8200 8300 84ff 1500 8200 8200 8500 02")
"""A request that has to be gathered waits for the memory that another connection holds."""
THREE_IN_FLIGHT = bytes.fromhex("00 0004 0004 0004 0004 0004 0004 8200 8300 84ff 8300 84ff 01")
"""More requests than may be in flight, in one write."""


@settings(max_examples=750, deadline=None)
@given(traces)
@example(FETCH_BEFORE_PRODUCE)
@example(HANDSHAKE_BEHIND_TOKEN)
@example(OTHER_NAME_BEHIND_FETCHES)
@example(REFUSED_MECHANISM)
@example(WITHOUT_LOGIN)
@example(REFUSED_AGAIN)
@example(MEMORY_HELD)
@example(THREE_IN_FLIGHT)
def test_whatever_a_client_does_it_is_held_and_charged_as_who_it_is(data: bytes) -> None:
    Trace(data)


@settings(max_examples=500, deadline=None)
@given(traces)
def test_shortcuts_change_nothing_whoever_the_client_becomes_and_whatever_is_left_unread(data: bytes) -> None:
    assert Trace(data).outcome() == Trace(data, is_fast=False).outcome()
