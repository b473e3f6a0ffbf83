"""The execution of a plan: start, watch and stop clients, set and revert quotas, read records back.

Imports `loadtest.clients` and `loadtest.verdict`. However a run ends, it reverts what it changed.
"""
