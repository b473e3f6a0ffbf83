"""What this program refuses about a threshold, taken by itself: the topic or broker, and the key.

That the thresholds of topics sum to no more than the total is `core.threshold_settings`' to say.
"""

import re
from typing import Final

from kafka_quotas.core.entity import BROKER, THRESHOLD_TYPES, TOPIC, Entity
from kafka_quotas.core.errors import InvalidQuotaError
from kafka_quotas.core.threshold_key import KEY_OF_KIND, THRESHOLD_KEYS, TOPIC_THRESHOLD, is_threshold_entity

MAX_TOPIC_LENGTH: Final = 249
"""The longest name of a topic. **Source:** `Topic.MAX_NAME_LENGTH` (Kafka 4.0)."""
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]+")
_NODE_ID: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_OPTIONS: Final = {TOPIC: "--topic NAME", BROKER: "--broker ID or --broker-default"}


def unmeant_threshold_entity(entity: Entity) -> InvalidQuotaError | None:
    """Why a topic or broker can't be meant as it was given, or None."""
    kinds = [kind for kind, _ in entity.parts]
    if len(kinds) > 1:
        return InvalidQuotaError(
            f"a {next(kind for kind in kinds if kind in THRESHOLD_TYPES)} can't be combined with anything else",
            hint="set the threshold of each topic or broker in a command of its own",
        )
    ((kind, name),) = entity.parts
    if kind == TOPIC:
        return _unmeant_topic(name)
    if name is None or _NODE_ID.fullmatch(name):
        return None
    return InvalidQuotaError(f"not the node id of a broker: {name!r}", hint="write its number, or --broker-default")


def _unmeant_topic(name: str | None) -> InvalidQuotaError | None:
    if name is None:
        return InvalidQuotaError(
            "topics have no default threshold",
            hint="a topic without one gets an equal share of what the others leave of the broker's total",
        )
    if name in (".", "..") or len(name) > MAX_TOPIC_LENGTH or not _TOPIC.fullmatch(name):
        return InvalidQuotaError(
            f"no topic can have this name: {name!r}",
            hint=f"Kafka takes 1 to {MAX_TOPIC_LENGTH} letters, digits, dots, underscores and hyphens",
        )
    return None


def unmeant_threshold_key(entity: Entity, name: str) -> InvalidQuotaError | None:
    """Why a key can't be meant for this topic or broker, or None."""
    kind = entity.parts[0][0]
    key = KEY_OF_KIND[kind]
    if name == key.name:
        return None
    return InvalidQuotaError(f"{name} is no threshold of a {kind}", hint=f"a {kind} takes {key.name}")


def misplaced_threshold(name: str) -> InvalidQuotaError:
    """Why a threshold's key is refused for a user, a client-id or an ip."""
    kind = TOPIC if name == TOPIC_THRESHOLD.name else BROKER
    return InvalidQuotaError(f"{THRESHOLD_KEYS[name].name} is set on a {kind}", hint=f"name it with {_OPTIONS[kind]}")


def no_place_for(entity: Entity) -> InvalidQuotaError:
    """Why a store that holds Kafka's own configuration refuses a threshold."""
    return InvalidQuotaError(
        f"Kafka has no thresholds, so this store can't hold one of {entity}",
        hint="keep it in a local store, or in the policy file of the daemon",
    )


def refuse_elsewhere(store_url: str, entity: Entity) -> None:
    """Nothing; the store at an address may hold what is set on an entity.

    Raises `InvalidQuotaError` for a threshold and a store other than a local one.
    """
    if is_threshold_entity(entity) and not store_url.startswith("local:"):
        raise no_place_for(entity)
