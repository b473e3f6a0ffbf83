"""A run's result as values and as files, and predicted throttle times.

Imports `loadtest.measurement` and `loadtest.plan`.
"""
