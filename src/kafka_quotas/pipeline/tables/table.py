"""The declaration of a table of the pipeline, and its schema for Arrow and for Spark.

Invariants: column order is the order in files. A table's columns have different names.
"""

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class ColumnType(Enum):
    """The types of columns: the names of Arrow's function and of Spark's class for each."""

    BOOL = ("bool_", "BooleanType")
    INT16 = ("int16", "ShortType")
    INT32 = ("int32", "IntegerType")
    INT64 = ("int64", "LongType")
    FLOAT64 = ("float64", "DoubleType")
    STRING = ("string", "StringType")
    DATE = ("date32", "DateType")

    def __init__(self, arrow: str, spark: str) -> None:
        self.arrow = arrow
        self.spark = spark


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """One column of a table."""

    name: str
    type: ColumnType
    doc: str
    """Meaning of the column."""
    unit: str = ""
    """Unit of the figures, empty for names and flags."""
    nullable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSchema:
    """One table and its columns."""

    name: str
    doc: str
    """Meaning of a row."""
    columns: tuple[TableColumn, ...]
    """Columns in the order of the files."""

    @property
    def column_names(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return tuple(column.name for column in self.columns)

    def arrow_schema(self) -> "pa.Schema":
        """Return the schema for Arrow and Parquet files."""
        import pyarrow as pa  # noqa: PLC0415 - the command's help must not load it

        kinds = ((each, getattr(pa, each.type.arrow)()) for each in self.columns)
        return pa.schema([pa.field(each.name, kind, nullable=each.nullable) for each, kind in kinds])

    def spark_schema(self) -> "StructType":
        """Return the schema for Spark."""
        from pyspark.sql import types  # noqa: PLC0415 - the command's help must not load it

        kinds = ((each, getattr(types, each.type.spark)()) for each in self.columns)
        return types.StructType([types.StructField(each.name, kind, nullable=each.nullable) for each, kind in kinds])
