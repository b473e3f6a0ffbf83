"""What a run is to do: workloads, schedules, offered rates, throttle cycles.

Imports `core` alone. A plan is spelled out: every client, every rate a figure.
"""
