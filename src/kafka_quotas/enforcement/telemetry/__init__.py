"""The daemon's view of itself: counters, log events, throttle statistics, the status document.

Imports `core` alone. Everything above may write into it; nothing here calls anything above.
"""
