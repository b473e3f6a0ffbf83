"""Recorded traffic by quota bucket: who shares one, what it was charged, and proposals to replay.

Imports `pipeline.tables` and `core.resolution`.
"""
