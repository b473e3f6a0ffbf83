"""Files of this machine: written whole or not at all, property files, and the journal of changes.

Imports `core` alone.
"""
