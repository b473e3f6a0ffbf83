"""The log of client libraries, which users only see when they debug.

A library logs the errors that it recovers from. It raises the others, and those reach the user.
"""

import logging


def quieten(logger_name: str) -> None:
    """Suppress the log of a library unless the root logger is set to DEBUG."""
    logger = logging.getLogger(logger_name)
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    logger.propagate = logging.getLogger().isEnabledFor(logging.DEBUG)
