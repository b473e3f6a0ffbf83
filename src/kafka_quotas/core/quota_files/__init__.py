"""Files of quotas: the document, what it declares, its JSON schema, and the writer.

Imports `core.changes` and below. Reading YAML is the caller's: documents arrive as plain values with their places.
"""
