"""A run's result as values and as files, the rates over throttle cycles, and predicted throttle times.

Imports `loadtest.measurement` and `loadtest.plan`.
"""
