"""What others look at: Prometheus metrics, health, and the status document with all buckets.

Imports `enforcement.telemetry`, `enforcement.quotas` and `enforcement.proxy`.
"""
