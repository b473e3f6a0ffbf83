"""The start of a connection before the first Kafka request: PROXY headers, TLS hello, certificates' names, SCRAM.

Imports `wire.codec`. Parsers use no socket: they take bytes and report when they need more.
"""
