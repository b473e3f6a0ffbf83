"""The upgrade of a running daemon: a new process takes its listening sockets and its measurements, and it drains.

May import everything of the daemon but the daemon as a whole. The old process is the predecessor, the new one the
successor.
"""
