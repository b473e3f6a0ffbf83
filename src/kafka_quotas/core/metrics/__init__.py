"""Kafka's measurements: sampled statistics, rates, token buckets, sensors, and throttle times.

Imports `core.model`. The class names are those of `org.apache.kafka.common.metrics`. Every method takes the time in
milliseconds. A *window* is one sample, a *rate* spans all samples that are kept.
"""
