"""Who used how much of which quota: seconds, minutes, hours and profiles of every bucket.

Imports `pipeline.kernels`, `pipeline.buckets` and `pipeline.engine`.
"""
