"""Verbs on stored quotas: alter, describe, exempt, revert, migrate, watch.

Imports `stores` and `core`.
"""
