"""Arrow's functions and memory, and its tables as bytes and as rows of Spark.

Arrow creates its functions over columns when it is loaded, where no type checker can follow: `compute` is untyped for
that reason. Slices need arrays of some MB for a fraction of a second each. By default the C library takes these from
the system and gives them back, and the system clears every page anew: a third of the processor time of `usage`.

Source: mallopt(3) of glibc. C libraries without it go on as before.
"""

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

compute: Final[Any] = pyarrow.compute


def arrow_frame(session: "SparkSession", table: pa.Table) -> "DataFrame":
    """Return a table as rows of Spark.

    A table that was joined from others, or collected, may have empty chunks, and Spark 4.0 leaves out all rows behind
    the first of them (`ArrowConverters` reads a partition's batches only up to an empty one).
    """
    return session.createDataFrame(table.combine_chunks())


_KEPT_BYTES: Final = 1 << 30
_OPTIONS: Final = (
    (-1, _KEPT_BYTES),  # M_TRIM_THRESHOLD: more free memory than this goes back to the system
    (-3, _KEPT_BYTES),  # M_MMAP_THRESHOLD: larger arrays come from the system, one by one
    (-8, 1),  # M_ARENA_MAX: heaps that threads have of their own are given back, whatever the thresholds
)


@lru_cache(maxsize=1)
def keep_memory() -> None:
    """Have NumPy and Arrow keep the memory that they free, from threads that begin later as well."""
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None and all(set_option(*each) for each in _OPTIONS):
        pa.set_memory_pool(pa.system_memory_pool())


_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)


def packed(table: pa.Table) -> pa.Buffer:
    """Return a table as an Arrow stream in bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_COMPRESSED) as stream:
        stream.write_table(table)
    return sink.getvalue()


def unpacked(content: pa.Buffer, *, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the table of an Arrow stream in bytes.

    `columns` are those to uncompress, None for all.
    """
    with pa.ipc.open_stream(content) as stream:
        if columns is None:
            return stream.read_all()
        fields = [stream.schema.get_field_index(name) for name in columns]
    with pa.ipc.open_stream(content, options=pa.ipc.IpcReadOptions(included_fields=fields)) as stream:
        return stream.read_all().select(columns)
