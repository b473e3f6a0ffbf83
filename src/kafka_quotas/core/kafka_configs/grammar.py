"""The grammar of `--add-config` and `--delete-config`: the keys that a command sets and removes.

Commas outside square brackets separate keys and `=` separates values, without the blanks around them. The brackets
themselves are dropped. The last value of a key counts. In a file brackets are kept.

**Source:** `ConfigCommand.parseConfigsToBeAdded`, `parseConfigsToBeDeleted` and `validatePropsKey` (4.0).
"""

import re
from collections.abc import Callable, Mapping

from kafka_quotas.core.java.strings import as_hash_map
from kafka_quotas.core.kafka_configs.options import KafkaConfigsError, Options

LoadProperties = Callable[[str], Mapping[str, str]]
"""Reads a Java properties file."""

_BLANKS = "".join(map(chr, range(0x21)))  # what Java's String.trim cuts off
_OUTSIDE_BRACKETS = r"(?=[^\]]*(?:\[|$))"
_COMMA = re.compile("," + _OUTSIDE_BRACKETS)
_EQUALS = re.compile(r"\s*=\s*" + _OUTSIDE_BRACKETS, re.ASCII)
_KEY = re.compile(r"[a-zA-Z0-9._-]*")
_PROPERTIES_SLOTS = 16  # those of a new java.util.Properties


def added_configs(options: Options, load_properties: LoadProperties) -> Mapping[str, str]:
    """Return the keys to set and their texts, in the order in which Java's Properties list them.

    Raises:
        KafkaConfigsError: What is not of the form key=value, and for characters no key has.
    """
    added: list[tuple[str, str]] = []
    file = options.value("add-config-file")
    if file is not None:
        added.extend(load_properties(file).items())
    text = options.value("add-config")
    if text is not None:
        added.extend(_pairs(text))
    configs = as_hash_map(added, _PROPERTIES_SLOTS)
    for key in configs:
        if not _KEY.fullmatch(key):
            raise KafkaConfigsError(f"Invalid character found for config key: {key}")
    return configs


def deleted_configs(options: Options) -> list[str]:
    """Return the keys to remove, in order."""
    return [key.strip(_BLANKS) for key in options.values("delete-config")]


def _pairs(text: str) -> list[tuple[str, str]]:
    pairs = [_EQUALS.split(piece) for piece in _pieces(text)]
    if any(len(pair) != 2 for pair in pairs):
        raise KafkaConfigsError(
            'requirement failed: Invalid entity config: all configs to be added must be in the format "key=val" or  '
            '"key=[val1,val2]" to group values which contain commas.'
        )
    return [(key.strip(_BLANKS), re.sub(r"[\[\]]", "", value).strip(_BLANKS)) for key, value in pairs]


def _pieces(text: str) -> list[str]:
    """Return the text between commas without empty pieces at the end.

    A text without a comma is one piece, even if it is empty.
    """
    pieces = _COMMA.split(text)
    if len(pieces) == 1:
        return pieces
    while pieces and not pieces[-1]:
        pieces.pop()
    return pieces
