"""Why things are as they are: doctor, top, tree, why, and where usage is read from.

Imports `commands.quotas`, `stores` and the daemon's client. Each raises a `StoreError` where a store can't be read.
"""
