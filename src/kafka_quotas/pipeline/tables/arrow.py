"""Arrow's functions, and its tables as bytes and as rows of Spark.

Arrow creates its functions over columns when it is loaded, where no type checker can follow: `compute` is untyped for
that reason.
"""

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


_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)


def packed(table: pa.Table) -> bytes:
    """Return a table as an Arrow stream in bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_COMPRESSED) as stream:
        stream.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def unpacked(content: bytes) -> pa.Table:
    """Return the table of an Arrow stream in bytes."""
    with pa.ipc.open_stream(content) as stream:
        return stream.read_all()
