"""Recorded traffic as the basis of quotas, on PySpark or on one machine without it.

Contract: kernels and parsers know no Spark. Transforms are `DataFrame -> DataFrame` with declared schemas. Sessions and
paths are arguments. The tables are in `tables.schemas`, the folder that holds them in `tables.lake`.
"""
