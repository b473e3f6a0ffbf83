"""The settings from options and files: listeners, rules, policies, principal mapping, event log.

Imports `enforcement.telemetry`. Values are checked here once; the rest of the daemon takes them as they are.
"""
