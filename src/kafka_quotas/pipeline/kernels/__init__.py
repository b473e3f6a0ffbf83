"""Kafka's quota arithmetic over arrays of events, exact and without Spark.

Kernels take many clients and many limits at a time.
"""
