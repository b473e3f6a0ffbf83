"""What a run saw: histograms of latency, timelines, traces, numbered records that were delivered.

Imports `loadtest.plan`. Memory is bounded whatever a run lasts.
"""
