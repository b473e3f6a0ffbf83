"""Recorded traffic by quota bucket: the clients that share one, their charges, and proposals to replay.

Imports `pipeline.tables` and `core.resolution`.
"""
