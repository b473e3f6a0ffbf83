"""The Delta tables: their columns and schemas, the folder that holds them, and packed rows of events.

Imports `core` and `pipeline.kernels`.
"""
