"""Analysis and judgement of a run: measured against expected, isolation, delivery and comparison.

Imports `loadtest.result` and `loadtest.record`.
"""
