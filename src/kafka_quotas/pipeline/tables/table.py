"""The declaration of a table of the pipeline, and its schema for Arrow and for Spark.

Invariants: column order is the order in files; a table's columns have different names.
"""

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType


class ColumnType(Enum):
    """The types of columns."""

    BOOL = "bool"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT64 = "float64"
    STRING = "string"
    DATE = "date"


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

        types = {
            ColumnType.BOOL: pa.bool_(),
            ColumnType.INT16: pa.int16(),
            ColumnType.INT32: pa.int32(),
            ColumnType.INT64: pa.int64(),
            ColumnType.FLOAT64: pa.float64(),
            ColumnType.STRING: pa.string(),
            ColumnType.DATE: pa.date32(),
        }
        return pa.schema([pa.field(each.name, types[each.type], nullable=each.nullable) for each in self.columns])

    def spark_schema(self) -> "StructType":
        """Return the schema for Spark."""
        from pyspark.sql import types  # noqa: PLC0415 - the command's help must not load it

        spark_types: dict[ColumnType, DataType] = {
            ColumnType.BOOL: types.BooleanType(),
            ColumnType.INT16: types.ShortType(),
            ColumnType.INT32: types.IntegerType(),
            ColumnType.INT64: types.LongType(),
            ColumnType.FLOAT64: types.DoubleType(),
            ColumnType.STRING: types.StringType(),
            ColumnType.DATE: types.DateType(),
        }
        return types.StructType(
            [types.StructField(each.name, spark_types[each.type], nullable=each.nullable) for each in self.columns]
        )
