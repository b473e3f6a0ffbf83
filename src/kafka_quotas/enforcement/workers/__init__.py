"""Several processes of one daemon: the parent accepts connections and workers serve them.

The parent is a whole daemon but for the connections: store, state file, status, metrics and control socket are its own.
It hands each connection to the worker with the fewest. All processes send each other what is charged, every few
milliseconds, so that each has the buckets of all. In a fleet the parent is the member for all of them. May import
everything of the daemon but the daemon as a whole.
"""
