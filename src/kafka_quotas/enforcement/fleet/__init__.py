"""One limit over several daemons: what each reports of its buckets, and what it does about the others' reports.

`sharing` is free of I/O and of any medium: what carries the reports (a topic, a socket between processes) calls it
with what came and the time. Words: a member is one life of one daemon, a report what it publishes every interval, a
position the place of a report in the one order in which all members read them.
"""
