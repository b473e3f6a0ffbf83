"""The load tester's verbs: run, restore, compare, and what a run needs around it.

Imports `commands.testbed`, `loadtest` and `stores`.
"""
