"""Requests of any API and version, with any part of them blown up: nobody else waits, and nothing is kept of them.

`fuzz/blown_up_requests.py` goes on for as long as is wanted, up to the longest request that a daemon takes.
"""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.support.daemon.blown_up_run import Attack, attack, run
from tests.support.frames.blown_up import Blown, Names, requests

pytestmark = pytest.mark.measuring

SIZES = (64 * 1024, 1024 * 1024, 2 * 1024 * 1024 - 1000, 8 * 1024 * 1024)
ATTACKS = 16
SEED = 20_261_126


def known(key: int, version: int, path: tuple[int, ...], size: int) -> Attack:
    """An attack that worked once."""
    blown = Blown(api_key=key, version=version, path=path, names=Names.MADE_UP, size=size)
    assert (key, version, path) in requests()
    return Attack(blown=blown, cuts=(2.0,), is_truncated=False, client_id_bytes=3, connections=8)


WORKED_ONCE = (
    (10, 4, (1,), 1024 * 1024),  # keys of FindCoordinator: an answer of as many addresses
    (19, 7, (0, -1), 1024 * 1024),  # tagged fields of a topic to create
    (0, 12, (3, 1), 2 * 1024 * 1024),  # partitions of a Produce, whose answer may name brokers
)


@pytest.mark.parametrize("places", [WORKED_ONCE, ()], ids=["worked once", "drawn"])
def test_an_honest_client_is_served_beside_them(
    places: Sequence[tuple[int, int, tuple[int, ...], int]], tmp_path: Path
) -> None:
    source = random.Random(SEED)
    attacks = [known(*place) for place in places] or [attack(source, SIZES) for _ in range(ATTACKS)]
    outcome = run(attacks, tmp_path)
    assert not outcome.findings(), f"seed {SEED}: {outcome}"
