"""Analysis and judgement of a run: measured against expected, isolation, delivery and the conclusion.

Imports `loadtest.result` and `loadtest.record`.
"""
