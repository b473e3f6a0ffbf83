"""The Kafka protocol without I/O: headers, tables of what can be patched where, and the patches."""
