"""The pages for browsers: quotas and throttling live, and a running load test. The assets are their files.

Imports `commands.insight`, `commands.quotas`, and of the daemon its HTTP server and its status. Documents are plain
values for JSON, with figures as numbers and as texts, so that the scripts of the pages format nothing.
"""
