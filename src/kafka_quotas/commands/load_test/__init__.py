"""The load tester's verbs (run, restore, validate) and the environment of a run.

Imports `commands.testbed`, `loadtest` and `stores`.
"""
