"""What a run proves: measured against expected, isolation, delivery, and the conclusion.

Imports `loadtest.result` and `loadtest.record`.
"""
