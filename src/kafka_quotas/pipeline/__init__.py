"""Recorded traffic as the basis of quotas, on PySpark or on one machine without it.

Contract: kernels and parsers know no Spark. Transforms are `DataFrame -> DataFrame` with declared schemas. Sessions and
paths are arguments. The tables and their folders are in `tables.schemas` and `tables.layout`.
"""
