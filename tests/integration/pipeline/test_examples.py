"""The pipeline's examples: the notebook runs, and Spark 4.1 or later takes the Declarative Pipeline."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Collection
from importlib.util import find_spec
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml
from tests.support.brokers.java_process import java
from tests.support.pipeline.command_process import TIMEOUT_S, environment
from tests.support.pipeline.logs import ROOT, SAMPLE_LINES
from tests.support.pipeline.spark_servers import SMALL

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long,
    pytest.mark.skipif(java() is None, reason="Spark needs Java, and there is none here"),
]

BIN = Path(sys.executable).parent
EXAMPLES = ROOT / "examples" / "pipeline"
LOGS = ROOT / "examples" / "request-log"
TABLES = ("events", "usage_by_hour", "profile", "report")
_CHECKED = """
assert profile.count() > 10
assert whatif.where("throttled_n > 0").count() > 0
assert {row.kind for row in quotas.collect()} == {"default", "override"}
"""


def run(*command: str | Path, folder: Path, settings: Path, codes: Collection[int] = (0,)) -> str:
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
    assert done.returncode in codes, shown[-4000:]
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


@pytest.mark.skipif(find_spec("pyspark.pipelines") is None, reason="Declarative Pipelines need Spark 4.1 or later")
def test_a_declarative_pipeline_fills_its_tables(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / "declarative", tmp_path, dirs_exist_ok=True)
    spec = tmp_path / "spark-pipeline.yml"
    own = yaml.safe_load(spec.read_text(encoding="utf-8"))
    own["storage"] = (tmp_path / "storage").as_uri()
    own["configuration"]["spark.kafka_quotas.logs"] = f"{LOGS}/{{broker_id}}/*.gz"
    spec.write_text(yaml.safe_dump(own), encoding="utf-8")
    for command in "dry-run", "run":
        # PySpark 4.2.0 ends in an error after a run with Python in it, whose last answer its client does not know.
        shown = run(BIN / "spark-pipelines", command, folder=tmp_path, settings=tmp_path, codes=(0, 1))
        assert "Run is COMPLETED." in shown
    tables = {each: pq.read_table(sorted((tmp_path / "spark-warehouse" / each).glob("*.parquet"))) for each in TABLES}
    assert pc.sum(tables["events"]["events"]).as_py() == 2 * SAMPLE_LINES
    assert pc.sum(tables["usage_by_hour"]["requests"]).as_py() == 2 * SAMPLE_LINES
    assert 0 < tables["report"].num_rows <= tables["profile"].num_rows
