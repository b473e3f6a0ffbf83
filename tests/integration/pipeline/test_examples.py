"""The pipeline's examples that run: the notebook."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.brokers.java_process import java
from tests.support.pipeline.command_process import TIMEOUT_S, environment
from tests.support.pipeline.logs import ROOT
from tests.support.pipeline.spark_servers import SMALL

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long,
    pytest.mark.skipif(java() is None, reason="Spark needs Java, and there is none here"),
]

BIN = Path(sys.executable).parent
EXAMPLES = ROOT / "examples" / "pipeline"
LOGS = ROOT / "examples" / "request-log"
_CHECKED = """
assert profile.count() > 10
assert whatif.where("throttled_n > 0").count() > 0
assert {row.kind for row in quotas.collect()} == {"default", "override"}
"""


def run(*command: str | Path, folder: Path, settings: Path) -> str:
    """Run a program, with a folder for Spark's settings for few rows, and return what it prints."""
    lines = [text.replace("=", " ") for text in SMALL if text.startswith("spark.")]
    (settings / "spark-defaults.conf").write_text("\n".join(lines), encoding="utf-8")
    variables = {
        **environment(),
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_CONF_DIR": str(settings),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        command, env=variables, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    shown = done.stdout + done.stderr
    assert done.returncode == 0, shown[-4000:]
    return shown


def test_the_notebook_runs_from_its_first_cell_to_its_last(tmp_path: Path) -> None:
    cells = json.loads((EXAMPLES / "quotas.ipynb").read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    (tmp_path / "request-log").symlink_to(LOGS)
    (tmp_path / "pipeline").mkdir()
    program = tmp_path / "pipeline" / "notebook.py"
    program.write_text("\n\n".join([*code, _CHECKED]), encoding="utf-8")
    shown = run(sys.executable, program, folder=program.parent, settings=tmp_path)
    assert "odd_reason" in shown
    assert "default" in shown
