"""Formats: documents within bounds, and quotas and metrics as ZooKeeper, metrics libraries and Prometheus write them.

Imports `core.model` and `core.java`. Formats are pure functions between text and values, without servers.
"""
