"""Events as they come, from a topic or a folder, into live usage and throttle state per quota bucket.

Contract: Spark reads, parses and remembers how far it came; the state is arrays in this process, kept per batch beside
Spark's checkpoint. A batch that is run again after a crash starts from the same state and writes the same rows.
"""
