"""The jobs over recorded events: usage, replay, recommendation, validation and report.

Each runs kernels over packed rows, and reads what they made by SQL. Imports `pipeline.kernels`, `pipeline.buckets` and
`pipeline.engine`.
"""
