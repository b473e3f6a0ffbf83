"""The effect of proposed quotas on recorded traffic, by Kafka's own arithmetic.

Imports `pipeline.kernels`, `pipeline.buckets` and `pipeline.engine`.
"""
