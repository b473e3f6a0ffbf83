"""The page on introducing quotas names alerts that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "rollout.md").read_text(encoding="utf-8")


def test_the_alerts_that_the_page_names_exist() -> None:
    rules = (ROOT / "examples" / "prometheus" / "kafka-quota-alerts.yml").read_text(encoding="utf-8")
    named = set(re.findall(r"alert `(\w+)`", PAGE))
    assert len(named) == 3
    assert named <= set(re.findall(r"alert: (\w+)", rules))
