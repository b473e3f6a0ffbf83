"""Events as they arrive, from a topic or a folder, as live usage and throttle state per quota bucket.

Contract: Spark reads and remembers its position. Executors parse, and keep the state in parts by bucket, as files
beside Spark's checkpoint. A batch that Spark runs again after a crash is reckoned once, or again from the state before.
"""
