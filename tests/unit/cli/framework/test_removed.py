"""A removed command or option is answered with what to use instead."""

import shlex

import pytest
import yaml
from tests.support.processes.run_cli import refused, run_cli

from kafka_quotas.cli.framework.help_page import removed
from kafka_quotas.loadtest.scenario.model import parse_scenario

OF_CLIENT = " of a client, in a scenario file for: kafka-quotas load-test run FILE"
OTHERS = {"mutation": {"does": "mutate"}, "request": {"does": "requests"}, "connections": {"does": "connect"}}


@pytest.mark.parametrize("words", removed())
def test_it_is_answered_with_what_to_use_instead(words: str) -> None:
    typed = shlex.split(words.removeprefix("kafka-quotas "))
    code, out, err = run_cli(*(["alter", *typed] if words.startswith("--") else typed))
    kind = "option: " if typed[-1].startswith("-") else "command "
    assert (code, out) == (2, "")
    assert err.splitlines() == [err.splitlines()[0], f"hint: {removed()[words]}"]
    assert err.startswith(f"error: no such {kind}")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("validate --strict", "kafka-quotas validate --help"),
        ("daemon status --origin", "kafka-quotas daemon status --help"),
        ("diff --summary", "kafka-quotas diff --help"),
        ("ui --title", "kafka-quotas ui --help"),
    ],
)
def test_a_usual_word_has_no_answer_of_another_command(words: str, hint: str) -> None:
    assert refused(*words.split()).splitlines()[1] == f"hint: {hint}"


def test_watch_is_not_pointed_to_an_option_that_it_lacks() -> None:
    assert refused("watch", "--entity-type", "users").startswith("error: no such option: --entity-type")
    for option in ("--user-any", "--client-any", "--ip-any"):
        assert "--entity-type" not in refused("watch", option)


@pytest.mark.parametrize("hint", dict.fromkeys(each for each in removed().values() if each.endswith(OF_CLIENT)))
def test_a_scenario_takes_what_is_said_to_belong_in_it(hint: str) -> None:
    said: dict[str, object] = {}
    for part in hint.removesuffix(OF_CLIENT).replace("...", "kind: create").split(" and "):
        said.update(yaml.safe_load(part))
    others = next((others for name, others in OTHERS.items() if name in said), {"does": "produce", "rate": "5MB/s"})
    client = {"client-id": "a", "client": "raw", "topic": "t", **others, **said}
    scenario = {"schema": "kafka-quotas.scenario/1", "name": "x", "title": "x", "duration": "30s"}
    parse_scenario(yaml.safe_dump({**scenario, "topics": [{"name": "t"}], "entities": [client]}), "x.yaml")
