"""`kafka-quotas daemon`: one module per command, and the options of `daemon run`."""
