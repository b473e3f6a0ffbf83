"""Weighted max-min fair shares of what a broker can take, where limits would add up to more.

Every client gets what it wants up to a common level times its priority, and the level is as high as the capacity
allows: nobody can get more without somebody getting less who has no more. A client pays who wants more than its share.

Source: "Data Networks" (Bertsekas, Gallager), section 6.5, max-min flow control.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple


class Want(NamedTuple):
    """What clients would be allowed at a broker."""

    limit: float
    """What one of them would be allowed, in the unit of the quota key."""
    priority: float = 1.0
    """By which factor its share exceeds that of others, above 0."""
    clients: int = 1
    """Clients of whom each wants that much."""


def fair_level(wants: Iterable[Want], capacity: float) -> float:
    """Return the level up to which wants are met, per unit of priority.

    Args:
        wants: The wants at one broker.
        capacity: What there is to share, in their unit; below 0 counts as 0.

    Returns:
        Infinity where all wants fit.
    """
    left = max(capacity, 0.0)
    ranked = sorted(
        (each for each in wants if each.limit * each.clients > 0), key=lambda each: each.limit / each.priority
    )
    if sum(each.limit * each.clients for each in ranked) <= left:
        return math.inf
    priorities = sum(each.priority * each.clients for each in ranked)
    for each in ranked:
        level = left / priorities
        if each.limit / each.priority > level:
            return level
        left -= each.limit * each.clients
        priorities -= each.priority * each.clients
    return math.inf
