"""Carrying a plan out: clients started, watched, ended; quotas set and put back; records read back.

Imports `loadtest.clients` and `loadtest.judge`. Whatever ends a run, what it set is undone.
"""
