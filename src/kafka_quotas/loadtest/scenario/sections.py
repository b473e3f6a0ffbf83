"""The format of scenario files: what no record has by itself, the JSON schema, and reading one from YAML.

The records of `model` say how a file has their fields. The JSON schema describes the shape, for editors and pipelines.
What it can't express (a topic that is named but not listed, a rate in multiples of no quota) `load-test validate`
reports. A YAML file is read as a tree in which no value is interpreted yet: there are no aliases, anchors or tags, so
that a small file can't become a large tree, a name occurs once in a mapping, and numbers and words are texts.

**Source:** JSON Schema, draft 2020-12.
"""

from typing import Any, Final

from kafka_quotas.core.changes.validation import our_refusals
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.entity import CLIENT_ID, IP, USER, Entity
from kafka_quotas.core.model.quota_key import QUOTA_KEYS
from kafka_quotas.core.model.value_format import parse_bytes, parse_quota_value
from kafka_quotas.loadtest.plan.document import (
    SectionField,
    duration_of,
    list_of,
    named_by,
    parsed_by,
    read,
    section,
    section_of,
    text_of,
    whole_of,
    word_of,
)
from kafka_quotas.loadtest.plan.workload import NO_LOAD, MutationFlood, RequestFlood
from kafka_quotas.loadtest.scenario.model import (
    NUMBER,
    SCENARIO_SCHEMA,
    QuotaStep,
    Scenario,
    ScenarioClient,
    ScenarioQuota,
)
from kafka_quotas.stores.files.yaml_reader import yaml_node

UNLIMITED: Final = "unlimited"
MAX_CHARACTERS: Final = 1_000_000


def _quota(entity: tuple[tuple[str, str | None], ...], values: tuple[tuple[str, str], ...], count: int = 1) -> Any:
    numbered = any(name is not None and NUMBER in name for _, name in entity)
    if numbered != (count > 1):
        raise UsageError(f"count and {NUMBER} belong together", hint=f"client-id: app-{NUMBER} with count: 10")
    figures = tuple((key, parse_quota_value(QUOTA_KEYS[key], text)) for key, text in values)
    entities = [Entity.from_pairs(_numbered(entity, number)) for number in range(1, count + 1)]
    refusal = our_refusals(entities[0], dict(figures))
    if refusal is not None:
        raise refusal
    return tuple(ScenarioQuota(entity=each, values=figures) for each in entities)


def _step(at_s: float, entity: tuple[tuple[str, str | None], ...], values: tuple[tuple[str, str], ...]) -> QuotaStep:
    (quota,) = _quota(entity, values)
    return QuotaStep(at_s=at_s, quota=quota)


def _numbered(entity: tuple[tuple[str, str | None], ...], number: int) -> list[tuple[str, str | None]]:
    return [(kind, name if name is None else name.replace(NUMBER, str(number))) for kind, name in entity]


def _entity(quota: str | None = None, **values: Any) -> ScenarioClient:
    flood = values.pop("request", None), values.pop("mutation", None)
    if quota == UNLIMITED:
        values["unlimited"] = True
    elif quota is not None:
        values["judge_by"] = float(parse_bytes(quota))
    if "stages" in values:
        values.setdefault("rate", NO_LOAD)
    return ScenarioClient(flood=flood[0] or flood[1], **values)


def _scenario(schema: str, quotas: tuple[tuple[ScenarioQuota, ...], ...] = (), **values: Any) -> Scenario:
    del schema  # there is one
    return Scenario(quotas=tuple(each for several in quotas for each in several), **values)


_QUOTA_ENTITY: Final = SectionField(
    "entity",
    named_by(text_of(nullable=True, example="alice"), names=(USER, CLIENT_ID, IP)),
    "whom it is for: user, client-id or ip; null is the default entity",
    required=True,
)
_QUOTA_VALUES: Final = SectionField(
    "set",
    named_by(parsed_by(str, also_number=True), names=tuple(QUOTA_KEYS)),
    "quota keys and their values",
    required=True,
    target="values",
)
QUOTA: Final = section(
    "a quota",
    (
        _QUOTA_ENTITY,
        _QUOTA_VALUES,
        SectionField(
            "count", whole_of(lowest=2, highest=1000), f"how many entities, numbered from 1 where {NUMBER} stands"
        ),
    ),
    build=_quota,
)
QUOTA_STEP: Final = section(
    "a quota step",
    (
        SectionField(
            "at", duration_of(zero=False), "when, counted from the end of the warm-up", required=True, target="at_s"
        ),
        _QUOTA_ENTITY,
        _QUOTA_VALUES,
    ),
    build=_step,
)
ENTITY: Final = section_of(
    ScenarioClient,
    "an entity",
    more=(
        SectionField(
            "quota",
            parsed_by(str, also_number=True),
            "the quota to judge by per broker, or unlimited, instead of what the quotas above resolve to",
        ),
        SectionField("request", section_of(RequestFlood, "request"), "what one request of its flood is"),
        SectionField("mutation", section_of(MutationFlood, "mutation"), "what one request of its topic changes is"),
    ),
    build=_entity,
)
SCENARIO: Final = section_of(
    Scenario,
    "a scenario",
    more=(
        SectionField("schema", word_of((SCENARIO_SCHEMA,)), "the version of this format", required=True),
        SectionField("quotas", list_of(QUOTA), "the quotas it sets and puts back"),
        SectionField("quota-steps", list_of(QUOTA_STEP), "quotas that it changes during the load, and puts back"),
        SectionField("entities", list_of(ENTITY), "the clients", required=True),
    ),
    build=_scenario,
)


def scenario_json_schema() -> dict[str, Any]:
    """Return the JSON schema of scenario files, as a JSON document."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": SCENARIO_SCHEMA,
        "description": "A load test: its clients, its quotas, and what is to come out.",
        **SCENARIO.schema,
    }


def parse(text: str, source: str) -> Scenario:
    """Parse a scenario, whose name or file is `source` in messages."""
    if len(text) > MAX_CHARACTERS:
        raise UsageError(f"{source} is too large for a scenario", hint=f"the most is {MAX_CHARACTERS} characters")
    node = yaml_node(text, source)
    if node.value is None:
        raise UsageError(f"{source} is empty", hint="kafka-quotas load-test list shows those that are shipped")
    scenario: Scenario = read(SCENARIO, node)
    return scenario
