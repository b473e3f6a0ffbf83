"""`kafka-quotas help`: topics, and the help of commands."""

import re
from pathlib import Path

import pytest
from tests.support.processes.run_cli import done, printed, run_cli

import kafka_quotas
from kafka_quotas.cli.help_topics import ENVIRONMENT, STORES, TOPICS, UNITS
from kafka_quotas.core.model.value_format import parse_bytes, parse_duration_ms
from kafka_quotas.stores.address import parse_store_url

SOURCES = Path(kafka_quotas.__file__).parent


@pytest.mark.parametrize("topic", TOPICS)
def test_a_topic_fits_a_terminal_and_names_all_of_its_rows(topic: str) -> None:
    out = done("help", topic)
    assert all(len(line) <= 80 for line in out.splitlines())
    assert all(f"  {name}" in out for name, _ in TOPICS[topic][1])


@pytest.mark.parametrize("words", [("alter",), ("daemon", "run"), ("kafka-configs",)])
def test_the_help_of_a_command_is_that_of_its_option(words: tuple[str, ...]) -> None:
    assert run_cli("help", *words)[:2] == (0, run_cli(*words, "--help")[1]) or words == ("kafka-configs",)


def test_without_words_it_lists_commands_and_topics() -> None:
    out = printed("help")
    assert out.startswith(run_cli("--help")[1].rstrip())
    assert all(f"\n  {topic} " in out for topic in TOPICS)


@pytest.mark.parametrize(
    ("words", "hint"),
    [(("zzz",), "topics: stores"), (("daemon", "walk"), "daemon --help"), (("stors",), "did you mean stores?")],
)
def test_unknown_words_are_answered_with_what_there_is(words: tuple[str, ...], hint: str) -> None:
    code, _, err = run_cli("help", *words)
    assert code == 2
    assert f"no command or topic '{' '.join(words)}'" in err
    assert hint in err


def test_every_variable_of_ours_in_the_sources_is_a_row() -> None:
    texts = (path.read_text(encoding="utf-8") for path in SOURCES.rglob("*.py"))
    found = {name for text in texts for name in re.findall(r"\"(KAFKA_QUOTAS_[A-Z_]+)\"", text)}
    of_every_command = {name for name in found if not name.startswith("KAFKA_QUOTAS_DAEMON_")}
    assert of_every_command - {"KAFKA_QUOTAS_COMPLETE"} <= {name for name, _ in ENVIRONMENT}


def test_the_forms_and_figures_of_topics_are_understood() -> None:
    for address, _ in STORES[:4]:
        shown = address.split(",")[0].replace("HOST", "host").replace(":PORT", ":9092")
        assert parse_store_url(shown).kind is not None
    text = " ".join(meaning for _, meaning in UNITS)
    for size, figure in re.findall(r"(\d+\w+) (?:and \w+ are|is) ([\d,]+) bytes", text):
        assert parse_bytes(size) == int(figure.replace(",", ""))
    assert [parse_duration_ms(each) for each in ("250us", "1.5s", "2h")] == [0.25, 1500, 7_200_000]
