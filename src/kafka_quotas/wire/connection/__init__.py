"""What happens before the first Kafka request: PROXY headers, TLS hello, certificates' names, SCRAM.

Imports `wire.codec`. No socket is touched; parsers take bytes and say when they need more.
"""
