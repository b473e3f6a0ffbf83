"""The views on the daemon from outside: Prometheus metrics, health, and the status document with all buckets.

Imports `enforcement.telemetry`, `enforcement.quotas` and `enforcement.proxy`.
"""
