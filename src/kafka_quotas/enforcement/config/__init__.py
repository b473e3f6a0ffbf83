"""What options and files say: listeners, rules, policies, principal mapping, the event log's settings.

Imports `enforcement.telemetry`. Values are checked here once; the rest of the daemon takes them as they are.
"""
