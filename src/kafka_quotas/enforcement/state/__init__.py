"""The charges that are kept across a restart: snapshots of buckets in the state file.

Imports `enforcement.quotas` and `enforcement.proxy`.
"""
