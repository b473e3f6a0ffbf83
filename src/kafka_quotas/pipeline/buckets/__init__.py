"""Recorded traffic by quota bucket: its clients and their charges, and proposals to replay.

Imports `pipeline.tables` and `core.resolution`.
"""
