"""A folder of tables, and the logs that are read into it by the command line."""

import json
from pathlib import Path
from typing import Any

from tests.support.processes.run_cli import run_cli


def ingest(out: Path, *arguments: str | Path, code: int = 0, zone: str | None = "UTC") -> dict[str, Any]:
    zoned = ("--timezone", zone) if zone else ()
    argv = ("pipeline", "ingest", "--out", out, "--engine", "local", *zoned, "--output", "json", *arguments)
    found, stdout, stderr = run_cli(*(str(each) for each in argv))
    assert found == code, stderr
    result: dict[str, Any] = json.loads(stdout) if stdout else {"stderr": stderr}
    return result


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def broker_log(folder: Path, text: str | bytes, *, broker_id: int = 1, name: str = "kafka-request.log") -> Path:
    path = folder / "logs" / str(broker_id) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def source(folder: Path) -> tuple[str, str]:
    return "--source", f"{folder}/logs/{{broker_id}}/*"
