"""What a daemon shares of its buckets: with its workers, with the members of its fleet, and with its next life.

`buckets` has the ids by which every process finds a bucket, and what has changed since. Workers add up what each of
them charges (`charges`, by way of `channel` between `pool` and `worker`). Members of a fleet share each
limit (`fleet`, with `bucket_share` for one bucket and `report`; `membership` is the daemon's part).
`state` is what a restart keeps. May import all of the daemon but the daemon as a whole.
"""
