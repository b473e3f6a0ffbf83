"""Files of quotas: the declarations, their JSON schema, and the writer.

Imports `core.changes` and below. The caller parses YAML: documents arrive as nodes.
"""
