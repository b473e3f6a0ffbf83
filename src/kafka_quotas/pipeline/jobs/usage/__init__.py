"""The usage of each quota by client: seconds, minutes, hours and profiles of every bucket.

Imports `pipeline.kernels`, `pipeline.buckets` and `pipeline.engine`.
"""
