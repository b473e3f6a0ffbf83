"""The page on seeing who is limited explains every check of the doctor."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "visibility.md").read_text(encoding="utf-8")


def test_every_check_of_the_doctor_is_explained() -> None:
    source = (ROOT / "src/kafka_quotas/commands/quotas/quota_checks.py").read_text(encoding="utf-8")
    table = source.partition("_CHECKS: ")[2].partition("\n}")[0]
    named = set(re.findall(r'^    "([a-z-]+)": \(', table, re.MULTILINE))
    assert {"shadowed", "below-one-batch", "quota-callback", "empty-znode"} <= named
    assert named <= set(re.findall(r"`([a-z-]+)`", PAGE))
