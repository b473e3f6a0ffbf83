"""Results in every form of `--output`: tables, JSON, YAML, CSV, progress, and values for people.

Imports `core` and `commands`. Data goes to standard output, everything else to standard error.
"""
