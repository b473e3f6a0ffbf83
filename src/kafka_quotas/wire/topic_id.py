"""Topic ids: 16 bytes that name a topic beside its name (KIP-516)."""

from typing import Final, TypeAlias

TopicId: TypeAlias = bytes

TOPIC_ID_BYTES: Final = 16
NO_TOPIC_ID: Final[TopicId] = bytes(TOPIC_ID_BYTES)
"""The id that stands for none."""
