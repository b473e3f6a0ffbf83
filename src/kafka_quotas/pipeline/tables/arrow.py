"""Tables of a job written as Parquet into a folder: `OUT/<table>/*.parquet`, as Spark and Arrow both read it.

Invariant: a table appears, or takes the place of an earlier one, by a rename of its whole folder.

Arrow's functions over columns. They are made when the library is loaded, where no type checker can follow.
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
    """Nothing; the tables are in the folder.

    Raises `KafkaQuotasError` where they can't be written; tables of an earlier run are still there then.
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
