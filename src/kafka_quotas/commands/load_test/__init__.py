"""The load tester's verbs (run, restore, compare) and the environment of a run.

Imports `commands.testbed`, `loadtest` and `stores`.
"""
