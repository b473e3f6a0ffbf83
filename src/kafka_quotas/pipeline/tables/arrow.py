"""Tables of a job as Parquet in a folder: `OUT/<table>/*.parquet`, for Spark and Arrow alike.

Invariant: a table appears, or replaces an earlier one, by a rename of its whole folder. Arrow creates its functions
over columns when it is loaded, where no type checker can follow: `compute` is untyped for that reason.
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

_PART: Final = "part-0.parquet"


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
            replace_folder(staging / name, out / name)
    except (OSError, pa.ArrowException) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise KafkaQuotasError(f"cannot write tables to {out}: {reason}") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def replace_folder(new: Path, target: Path) -> None:
    """Rename a finished folder to `target`, in place of the one that is there.

    Raises:
        OSError: The folder can't be renamed, and the earlier one is there as before.
    """
    old = target.with_name(f".old-{target.name}")
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)
    try:
        new.rename(target)
    except OSError:
        if old.exists():
            old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)
