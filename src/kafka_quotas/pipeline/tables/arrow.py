"""Tables of a job as Parquet in a folder: `OUT/<table>/*.parquet`, for Spark and Arrow alike.

Invariant: a table appears, or replaces an earlier one, by a rename of its whole folder. Arrow creates its functions
over columns when it is loaded, where no type checker can follow; `compute` is untyped for that reason.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from kafka_quotas.core.errors import KafkaQuotasError

compute: Final[Any] = pyarrow.compute


_PART = "part-0.parquet"


def write_tables(out: Path, tables: Mapping[str, pa.Table]) -> None:
    """Write the tables to the folder, replacing those of an earlier run.

    Raises:
        KafkaQuotasError: The tables can't be written.
    """
    staging = out / f".staging-{os.getpid()}"
    try:
        for name, table in tables.items():
            (staging / name).mkdir(parents=True)
            pq.write_table(table, staging / name / _PART, compression="zstd")
        for name in tables:
            if (out / name).exists():
                (out / name).rename(staging / f"{name}.old")
            (staging / name).rename(out / name)
    except (OSError, pa.ArrowException) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise KafkaQuotasError(f"cannot write tables to {out}: {reason}") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
