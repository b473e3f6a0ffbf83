"""Traffic of the past turned into quotas for the future, on PySpark or on one machine without it.

Contract: kernels and parsers know no Spark; transforms are `DataFrame -> DataFrame` with declared schemas; sessions and
paths are arguments. The tables, and where they lie, are in `schemas` and `layout`.
"""
