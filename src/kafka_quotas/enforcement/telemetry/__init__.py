"""What the daemon knows about itself: counters, log events, throttle statistics, the status document.

Imports `core` alone. Everything above may write into it; nothing here asks anybody.
"""
