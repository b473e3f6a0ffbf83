"""A line per charge, for the pipeline: the bounded queue, the writer, files and the topic sink.

Imports `enforcement.quotas` and `enforcement.config`. What does not fit into the queue is counted, never waited for.
"""
