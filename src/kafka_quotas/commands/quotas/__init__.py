"""Verbs on stored quotas: alter, describe, revert, migrate, watch.

Imports `stores` and `core`. Each raises a `StoreError` where a store can't be read.
"""
