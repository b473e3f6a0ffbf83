"""One client's connection and its broker's behind it, without I/O: bytes in, bytes out, and when.

Imports `enforcement.quotas`, `enforcement.event_log` and `wire`. The time comes in as an argument.
`docs/architecture.md` draws the states. A *filter* sees whole requests of one API, everything else streams.
"""
