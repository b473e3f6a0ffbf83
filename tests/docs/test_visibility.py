"""The page on seeing who is limited explains every check of the doctor."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "visibility.md").read_text(encoding="utf-8")


def test_every_check_of_the_doctor_is_explained() -> None:
    sources = [
        (ROOT / "src/kafka_quotas/commands" / path).read_text(encoding="utf-8")
        for path in ("insight/doctor.py", "quotas/quota_checks.py")
    ]
    named = {name for text in sources for name in re.findall(r'check=f?"([a-z{}-]+)"', text)}
    assert "below-one-{what}" in named
    explained = set(re.findall(r"`([a-z-]+)`", PAGE))
    assert named - {"below-one-{what}"} <= explained
    assert {"below-one-batch", "below-one-fetch"} <= explained
