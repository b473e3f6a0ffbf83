"""A run's result as a value and as files: document, samples, histograms, and reading them again.

Imports `loadtest.record` and `loadtest.plan`.
"""
