"""Resolution of stored quotas for a client: Kafka's order of precedence, and its explanation.

Imports `core.model`. *Effective* is the quota that a client gets, *shadowed* is one that another quota precedes.
"""
