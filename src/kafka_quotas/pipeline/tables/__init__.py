"""The Delta tables: their columns and schemas, the folder that holds them, and events by ranges of clients.

Imports `core` and `pipeline.kernels`.
"""
