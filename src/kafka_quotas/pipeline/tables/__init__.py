"""The tables: their columns and schemas, where they lie, and reading events slice by slice.

Imports `core` alone.
"""
