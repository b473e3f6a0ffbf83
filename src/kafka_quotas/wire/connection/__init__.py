"""The start of a connection: PROXY headers, TLS hello, names in certificates.

Imports `wire.codec`. Parsers use no socket: they take bytes and report when they need more.
"""
