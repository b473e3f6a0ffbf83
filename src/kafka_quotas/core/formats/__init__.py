"""Formats: documents within bounds, typed documents, and quotas and metrics as ZooKeeper and Prometheus write them.

Imports `core.model`, `core.java` and `core.resolution`. A *node* is a part of a file that knows its line, and
`typed_document` fills records from nodes. Formats are functions between text and values, without servers.
"""
