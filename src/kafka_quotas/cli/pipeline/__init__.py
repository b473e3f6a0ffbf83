"""`kafka-quotas pipeline`: one module per job, shared options, and the report's page."""
