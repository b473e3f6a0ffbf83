"""A run's result, as values and as files: document, samples, histograms, and reading them back.

Imports `loadtest.record` and `loadtest.plan`.
"""
