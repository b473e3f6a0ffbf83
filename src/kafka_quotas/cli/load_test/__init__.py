"""`kafka-quotas load-test`: one module per command, shared options, and the result's output."""
