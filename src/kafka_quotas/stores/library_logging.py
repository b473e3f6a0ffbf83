"""Client libraries log what they recover from; what they don't, they raise, and that is what a user gets to see."""

import logging


def quieten(logger_name: str) -> None:
    """Nothing; the library's log reaches nobody unless the root logger is set to DEBUG."""
    logger = logging.getLogger(logger_name)
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    logger.propagate = logging.getLogger().isEnabledFor(logging.DEBUG)
