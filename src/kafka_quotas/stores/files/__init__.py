"""Files on this machine: text files replaced atomically, YAML as nodes, and the journal of changes.

Imports `core` alone.
"""
