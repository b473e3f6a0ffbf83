"""Verdicts on a run: measured against expected, thresholds, isolation, delivery and comparison.

Imports `loadtest.results` and `loadtest.clients`.
"""
