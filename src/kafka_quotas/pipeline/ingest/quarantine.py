"""The quarantine of one ingest, summed up."""

from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from kafka_quotas.pipeline.tables.schemas import QUARANTINE


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A reason for which lines of a file are in quarantine."""

    src_file: str
    reason: str
    lines: int
    first_line_no: int
    """Number of the first such line."""


def count_faults(ingest: Path) -> tuple[Fault, ...]:
    """Return the faults of the lines in an ingest's folder, the most frequent first."""
    folder = ingest / QUARANTINE.name
    if not folder.is_dir():
        return ()
    rows = pq.read_table(folder, columns=["src_file", "reason", "line_no"])
    grouped = rows.group_by(["src_file", "reason"]).aggregate([("line_no", "count"), ("line_no", "min")])
    faults = [
        Fault(
            src_file=row["src_file"], reason=row["reason"], lines=row["line_no_count"], first_line_no=row["line_no_min"]
        )
        for row in grouped.to_pylist()
    ]
    return tuple(sorted(faults, key=lambda fault: (-fault.lines, fault.src_file, fault.first_line_no)))
