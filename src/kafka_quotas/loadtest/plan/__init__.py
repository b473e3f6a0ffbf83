"""The plan of a run: workloads, schedules, offered rates and throttle cycles.

Imports `core` alone. A plan lists every client with its rate as a figure.
"""
