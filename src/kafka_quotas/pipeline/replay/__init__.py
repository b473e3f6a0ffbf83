"""What proposed quotas would have done to recorded traffic, by Kafka's own arithmetic.

Imports `pipeline.kernels`, `pipeline.buckets` and `pipeline.engine`.
"""
