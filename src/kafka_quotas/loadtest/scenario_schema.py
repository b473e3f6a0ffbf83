"""The JSON schema of scenario files, from the tables that the parser reads by.

It describes the shape, for editors and pipelines; what it can't say (a topic that is named but not listed, a rate in
multiples of no quota) `load-test validate` says. **Source:** JSON Schema, draft 2020-12.
"""

from typing import Any

from kafka_quotas.loadtest.scenario import SCENARIO_SCHEMA
from kafka_quotas.loadtest.scenario_sections import SCENARIO


def scenario_json_schema() -> dict[str, Any]:
    """The schema, as a JSON document."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": SCENARIO_SCHEMA,
        "description": "A load test: its clients, its quotas, and what is to come out.",
        **SCENARIO.schema(),
    }
