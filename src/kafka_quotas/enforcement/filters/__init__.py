"""Filters for requests about topics: mutation quotas, thresholds, creation by Metadata, topic ids.

Imports `enforcement.session`. The filters see whole requests and responses; the session knows nothing of topics.
"""
