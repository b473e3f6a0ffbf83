"""The fleets that `simulation.py` runs: their clients, their medium, and what happens to them."""

from dataclasses import dataclass, replace
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A client: one request at a time, as fast as it may."""

    member: int
    request: int = 60_000
    think_ms: int = 50
    """Time from a response to the next request."""
    spans: tuple[tuple[int, int], ...] = ((0, 1 << 40),)
    """When it sends, ms from the start."""
    move: tuple[int, int] | None = None
    """When it moves to which other member."""
    name: str = "app"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A fleet, its clients and its medium."""

    name: str
    members: int
    clients: tuple[Client, ...]
    delay_ms: tuple[int, int] = (20, 100)
    seconds: int = 90
    changed_s: int = 0
    """Time of the last change, from which on settling counts."""
    loss: float = 0.0
    doubled: float = 0.0
    dead: tuple[tuple[int, int, int], ...] = ()
    """Member, from, to (ms): it neither serves nor reports, its clients go to the next one; then it starts anew."""
    stalled: tuple[tuple[int, int, int], ...] = ()
    """Member, from, to (ms): it serves its clients but neither reports nor hears."""
    outage: tuple[int, int] = (-1, -1)
    """When the medium takes nothing (ms)."""
    bystanders: int = 0
    """Further buckets of each member, all active, far from their limits."""
    limits: int = 1
    """Number of names `app`, `app1` and so on, each with the limit."""
    interval_ms: int = 500


def app(number: int) -> str:
    return f"app{number or ''}"


def spread(members: int, clients: int, weights: list[int] | None = None, **more: object) -> tuple[Client, ...]:
    """Return clients on members in turn, or in proportion to weights."""
    if weights is None:
        homes = [each % members for each in range(clients)]
    else:
        homes = [member for member, weight in enumerate(weights) for _ in range(weight)][:clients]
    return tuple(Client(member=home, **more) for home in homes)  # type: ignore[arg-type]


REST: Final = ((0, 30_000), (60_000, 1 << 40))


LONG_S: Final = 330
"""Seconds of scenarios in which nothing changes: 30 windows, of which neither the first nor the last decides."""


def scenarios() -> list[Scenario]:
    base = Scenario(name="3, even", members=3, clients=spread(3, 24))
    uneven = spread(3, 24, [16, 6, 2])
    moving = tuple(replace(each, move=(30_000 + 1000 * at, 2)) for at, each in enumerate(spread(3, 12, [12])))
    return [
        replace(base, seconds=LONG_S),
        replace(base, name="3, very fast clients", seconds=LONG_S, clients=spread(3, 24, think_ms=5)),
        replace(base, name="2, even", seconds=LONG_S, members=2, clients=spread(2, 8)),
        replace(base, name="3, 16/6/2", seconds=LONG_S, clients=uneven),
        replace(base, name="3, all on one", seconds=LONG_S, clients=spread(3, 12, [12])),
        replace(base, name="3, rest of 30 s", clients=spread(3, 24, spans=REST), changed_s=60),
        replace(base, name="3, demand moves", clients=moving, changed_s=42),
        replace(base, name="3, delay 50 ms", seconds=LONG_S, clients=uneven, delay_ms=(50, 50)),
        replace(base, name="3, delay 0.5 to 1 s", seconds=LONG_S, clients=uneven, delay_ms=(500, 1000)),
        replace(base, name="3, delay 2 s", seconds=LONG_S, clients=uneven, delay_ms=(1900, 2000)),
        replace(base, name="3, 10 % lost, doubled", seconds=LONG_S, clients=uneven, loss=0.1, doubled=0.1),
        replace(base, name="3, one dies and returns", clients=uneven, dead=((0, 30_000, 35_000),), changed_s=35),
        replace(base, name="3, one stalls for 5 s", clients=uneven, stalled=((1, 30_000, 35_000),), changed_s=35),
        replace(base, name="3, medium down 20 s", clients=uneven, outage=(30_000, 50_000), changed_s=50),
        replace(base, name="10, even", seconds=LONG_S, members=10, clients=spread(10, 40)),
        replace(base, name="10, all on one", seconds=LONG_S, members=10, clients=spread(10, 20, [20])),
        replace(base, name="10, rest of 30 s", members=10, clients=spread(10, 40, spans=REST), changed_s=60),
        replace(base, name="20, 2 clients each", members=20, clients=spread(20, 40, request=20_000), seconds=LONG_S),
        replace(base, name="50, even", members=50, clients=spread(50, 100, request=20_000), seconds=45),
        replace(base, name="200, even", members=200, clients=spread(200, 200, request=10_000), seconds=30),
        replace(base, name="200, all on one", members=200, clients=spread(200, 20, [20]), seconds=30),
        replace(base, name="200, 20 active", members=200, clients=spread(20, 40), seconds=30),
        many(),
    ]


def many() -> Scenario:
    """Return 100 members with 1,000 active buckets each, 25 of which are at their limits."""
    clients = tuple(
        Client(member=(each * 7 + 3 * turn) % 100, request=50_000, name=app(each))
        for each in range(25)
        for turn in range(40)
    )
    return Scenario(name="100, 1,000 buckets each", members=100, clients=clients, seconds=30, limits=25, bystanders=975)
