"""The settings of a daemon's part in a fleet."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kafka_quotas.enforcement.config.topic_target import TopicTarget

FLEET: Final = "default"
"""Name of the fleet of daemons that give none."""


class Fallback(StrEnum):
    """What a member that is cut off from the others allows."""

    SHARE = "share"
    """The share of each limit that its clients used last, an equal one where none did."""
    WHOLE = "whole"
    """Each whole limit, as without a fleet."""
    CLOSED = "closed"
    """As good as nothing: every request is followed by a throttle time of a whole window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSettings:
    """The topic that the members share, and how this one behaves."""

    target: TopicTarget
    """Topic of the reports."""
    name: str = FLEET
    """Name of the fleet, of which a topic can have several."""
    fallback: Fallback = Fallback.SHARE
    """What to allow while the others can't be heard."""
