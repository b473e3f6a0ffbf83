"""Quotas and metrics in other systems' words: ZooKeeper's znodes, metric names, Prometheus text.

Imports `core.model` and `core.java`. Formats are pure functions between text and values; no server is touched.
"""
