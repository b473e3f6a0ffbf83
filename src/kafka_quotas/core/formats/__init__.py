"""Quotas and metrics in the formats of other systems: ZooKeeper's znodes, metric names, Prometheus text.

Imports `core.model` and `core.java`. Formats are pure functions between text and values, without servers.
"""
