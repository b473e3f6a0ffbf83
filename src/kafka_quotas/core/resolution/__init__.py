"""Which stored quota applies to whom: Kafka's order of precedence, and the explanation of it.

Imports `core.model`. *Effective* is what a client really gets, *shadowed* is a quota that another one goes before.
"""
