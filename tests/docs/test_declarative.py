"""The file that docs/how-to/declarative.md shows is in order."""

import re
from pathlib import Path

from tests.support.processes.run_cli import run_cli

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "declarative.md").read_text(encoding="utf-8")


def test_the_file_of_the_page_is_in_order(tmp_path: Path) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "q.yaml").write_text(block, encoding="utf-8")
    assert run_cli("validate", str(tmp_path / "q.yaml"))[0] == 0
