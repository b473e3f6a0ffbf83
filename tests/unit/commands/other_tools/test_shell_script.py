"""Scripts of kafka-configs commands."""

import contextlib
import time

import pytest
from tests.support.stores.other_tools import read

from kafka_quotas.commands.other_tools.formats import Tool, tool_text
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.formats.nodes import DocumentError
from kafka_quotas.core.model.entity import Entity

SCRIPT = r"""#!/usr/bin/env bash
# Quotas of the shop.
set -euo pipefail
BOOTSTRAP="${BOOTSTRAP:-localhost:9092}"
echo "kafka-configs.sh --alter is on its way to" $BOOTSTRAP; export KAFKA_HEAP_OPTS="-Xmx256m"

$KAFKA_HOME/bin/kafka-configs.sh --bootstrap-server "$BOOTSTRAP" --alter \
  --add-config 'producer_byte_rate=1024,consumer_byte_rate=2048' \
  --entity-type users --entity-name alice --entity-type clients --entity-default > /dev/null 2>&1
KAFKA_OPTS=-Dx=y kafka-configs --bootstrap-server=$BOOTSTRAP --alter --user 'bob smith' \
  --add-config request_percentage=50
kafka-configs --bootstrap-server x:1 --alter --delete-config request_percentage --user bob\ smith && echo done
docker exec -it broker /opt/kafka/bin/kafka-configs.sh --bootstrap-server x:1 --describe --entity-type users
sudo kafka-configs --bootstrap-server x:1 --command-config "$CONFIG" --alter --ip 10.0.0.1 \
  --add-config connection_creation_rate=5
"""


def test_a_script_is_what_its_commands_set_in_order() -> None:
    assert read(Tool.KAFKA_CONFIGS, SCRIPT) == (
        {
            "user alice, default client-id": {"producer_byte_rate": 1024.0, "consumer_byte_rate": 2048.0},
            "user 'bob smith'": {"request_percentage": None},
            "ip 10.0.0.1": {"connection_creation_rate": 5.0},
        },
        [],
        [],
    )


COMMAND = "kafka-configs.sh --bootstrap-server x:1 --alter --add-config producer_byte_rate=1 --entity-type users"


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("--entity-name a#b # a comment", "a#b"),
        ("--entity-name 'a b'", "a b"),
        (r"--entity-name a\ b", "a b"),
        ("--entity-name 'it'\\''s'", "it's"),
        ('--entity-name "a \\"b\\" \\$c \\\\d"', 'a "b" $c \\d'),
        ("--entity-name '$HOME `x` *'", "$HOME `x` *"),
        ("--entity-name '>'", ">"),
        ("--entity-name=a=b", "a=b"),
        ("--entity-name 'a\nb'", "a\nb"),
        ("--entity-name \\\n  a", "a"),
        ("--entity-name a >>log 2>/dev/null <in", "a"),
        ("--entity-name 'a'1>log", "a1"),
        ("--entity-name a\\\nb", "ab"),
        ("--entity-name CN=web,O=x", "CN=web,O=x"),
    ],
)
def test_words_are_quoted_as_in_a_shell(words: str, name: str) -> None:
    rows, problems, _ = read(Tool.KAFKA_CONFIGS, f"{COMMAND} {words}")
    assert problems == []
    assert rows == {str(Entity.of(user=name)): {"producer_byte_rate": 1.0}}


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        (f"\n{COMMAND} --entity-name $USER", 2, "only the shell knows the value of '$USER'"),
        (f'{COMMAND} --entity-name "${{U:-a}}"', 1, "only the shell knows the value of '${U:-a}'"),
        (f"{COMMAND} \\\n --entity-name $(whoami)", 2, "only the shell knows the value of '$(whoami)'"),
        (f"{COMMAND} --entity-name `whoami`", 1, "only the shell knows the value of '`whoami`'"),
        (f'{COMMAND} --entity-name "$@"', 1, "only the shell knows the value of '$@'"),
        (f"{COMMAND} --entity-name a*", 1, "only the shell knows the value of 'a*'"),
        (f"{COMMAND} --entity-name {{a,b}}", 1, "only the shell knows the value of '{a,b}'"),
        (f"{COMMAND} --entity-name ~", 1, "only the shell knows the value of '~'"),
        (f"for u in a b; do\n{COMMAND} --entity-name a\ndone", 1, "only the shell knows what 'for' makes of"),
        (f"if true; then {COMMAND} --entity-name a; fi", 1, "only the shell knows what 'if' makes of"),
        (f"set_quota() {{\n {COMMAND} --entity-name a\n}}", 1, "only the shell knows what '{' makes of"),
        (f"false || {COMMAND} --entity-name a", 1, "a command after ||"),
        (f"echo a | {COMMAND} --entity-name a", 1, "a command after |"),
        (f"echo a | xargs {COMMAND} --entity-name", 1, "kafka-configs run by 'xargs'"),
        (f"{COMMAND} --entity-name a <<X\nX", 1, "a here-document"),
        (f"true\n{COMMAND} --entity-name 'a", 2, "a quote is not closed"),
        (f"{COMMAND.replace('=1 ', '=1MB ')} --entity-name a", 1, "Cannot parse quota configuration value"),
        (f"{COMMAND.replace('=1 ', '=-1 ')} --entity-name a", 1, "producer_byte_rate"),
        ("kafka-configs --alter --add-config a=1 --user a", 1, "Either --bootstrap-server or"),
        (
            "kafka-configs --bootstrap-server x:1 --alter --add-config-file f --user a",
            1,
            "the keys are in another file: f",
        ),
        (f"{COMMAND} --entity-nam a", 1, "entity-nam is not a recognized option"),
    ],
)
def test_what_only_the_shell_knows_is_refused_with_its_line(text: str, place: int, message: str) -> None:
    try:
        rows, problems, _ = read(Tool.KAFKA_CONFIGS, text)
    except DocumentError as error:
        rows, problems = {}, [error.message]
    assert problems[0].startswith(f"file:{place}: {message}")
    assert rows == {} or "makes of" in problems[0] or "greater than" in problems[0]


def test_what_is_no_quota_is_left_out_by_name() -> None:
    text = (
        "kafka-configs --bootstrap-server x:1 --alter --add-config 'SCRAM-SHA-256=[password=x]' --user bob\n"
        "kafka-configs --bootstrap-server x:1 --alter --add-config retention.ms=1 --topic t\n"
    )
    assert read(Tool.KAFKA_CONFIGS, text) == (
        {},
        [],
        ["file:1: SCRAM credentials are not quotas", "file:2: topics have no quotas"],
    )


def test_a_name_with_a_nul_is_refused() -> None:
    with pytest.raises(UsageError, match=r"user 'a\\x00': no argument of a command holds a NUL"):
        tool_text({Entity.of(user="a\0"): {"producer_byte_rate": 1.0}}, Tool.KAFKA_CONFIGS)


@pytest.mark.parametrize("text", ["\\\n" * 50_000, "$(" * 50_000, "'" * 50_001, "#" * 250_000, "a " * 75_000])
def test_a_hostile_script_ends_soon(text: str) -> None:
    begin_s = time.process_time()
    with contextlib.suppress(DocumentError):
        read(Tool.KAFKA_CONFIGS, text)
    assert time.process_time() - begin_s < 2
