"""Measurements of a run: latencies, timelines, traces and the delivery of numbered records.

Imports `loadtest.plan`. Memory is bounded, however long a run lasts.
"""
