"""What a `kafka-configs` command does that is hardly what was meant, where the original says nothing about it."""

import math
from collections.abc import Iterator

from kafka_quotas.core import java_double
from kafka_quotas.core.errors import InvalidQuotaError
from kafka_quotas.core.kafka_configs.arguments import Action, KafkaConfigsCommand
from kafka_quotas.core.kafka_configs.entities import NAMED_FLAGS

_NAME_OPTIONS = ("entity-name", *NAMED_FLAGS)


def warnings(command: KafkaConfigsCommand) -> list[str]:
    """What to tell before an alteration is made, each in one line; describing and the like is harmless."""
    if command.action is not Action.ALTER:
        return []
    return [*_about_names(command), *_about_values(command), *_about_ignored_words(command)]


def _about_names(command: KafkaConfigsCommand) -> Iterator[str]:
    for option in _NAME_OPTIONS:
        for name in command.options.values(option):
            if not name:
                yield f"--{option} is empty, so it means the default; is the shell variable behind it set?"
            elif name.startswith("--"):
                yield f"--{option} takes {name} as the name; is the shell variable in between set?"


def _about_values(command: KafkaConfigsCommand) -> Iterator[str]:
    for key, text in command.added.items():
        try:
            value = java_double.parse(text)
        except InvalidQuotaError:
            continue  # refused in its turn, in the words of the original
        if math.isnan(value):
            yield f"{key}=NaN is taken by KRaft brokers and limits nothing in a way anybody could rely on"


def _about_ignored_words(command: KafkaConfigsCommand) -> Iterator[str]:
    if command.options.ignored:
        yield f"no option, so passed over: {' '.join(command.options.ignored)}"
