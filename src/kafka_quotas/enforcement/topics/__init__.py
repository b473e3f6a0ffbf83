"""Filters for requests about topics: mutation quotas, thresholds, creation by Metadata, topic ids.

Imports `enforcement.session`. They see whole requests and responses; the session knows nothing of topics.
"""
