"""The pipeline's verbs, one per job.

Imports `pipeline` and `commands.quotas`.
"""
