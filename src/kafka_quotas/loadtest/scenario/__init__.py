"""Scenario files: their fields as one table, the model, planning, scaling and preflight.

Imports `loadtest.plan` and `loadtest.run`.
"""
