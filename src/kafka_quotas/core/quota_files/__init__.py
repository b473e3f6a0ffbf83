"""Files of quotas: the document, its declarations, its JSON schema, and the writer.

Imports `core.changes` and below. The caller reads YAML: documents arrive as plain values with their locations.
"""
