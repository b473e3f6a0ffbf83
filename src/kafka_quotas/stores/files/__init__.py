"""Files on this machine: text files replaced atomically, property files, and the journal of changes.

Imports `core` alone.
"""
