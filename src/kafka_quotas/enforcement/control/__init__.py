"""The Unix socket: status, reload and decisions, with its client.

Imports `enforcement.decisions` and below.
"""
