"""The pictures of the state machines show the states that the code has."""

import xml.etree.ElementTree as ET
from enum import Enum

import pytest
from generators.state_diagrams import DIAGRAMS, IMAGES, states

from kafka_quotas.enforcement.session.identity import SaslState
from kafka_quotas.enforcement.session.state import ConnectionState


@pytest.mark.parametrize(("name", "shown"), [("connection-states", ConnectionState), ("sasl-states", SaslState)])
def test_a_picture_shows_every_state(name: str, shown: type[Enum]) -> None:
    assert states(name) == {state.name for state in shown}


@pytest.mark.parametrize("name", DIAGRAMS)
def test_the_picture_is_drawn_from_the_arrows_that_are_listed(name: str) -> None:
    drawn = (IMAGES / f"{name}.svg").read_text(encoding="utf-8")
    texts = {(text.text or "").strip() for text in ET.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")}
    assert texts == states(name) | {line for *_, event in DIAGRAMS[name] for line in event.split("|")} - {""}
    assert "prefers-color-scheme: dark" in drawn
