"""The tables: their columns and schemas, their folders, and reading events slice by slice.

Imports `core` alone.
"""
