"""One client connection and its upstream connection, without I/O: bytes in, bytes out, and when.

Imports `enforcement.quotas`, `enforcement.event_log` and `wire`. The caller passes the time as an argument.
`docs/project/architecture.md` draws the states. A *filter* sees whole requests of one API; all other bytes stream.
Bytes that can't be handled raise a `ProtocolError`, which `frames` completes with the peer that sent them.
"""
