"""Why a line is no datum."""


class BadLineError(Exception):
    """What is wrong with one line, in words for the quarantine; the reader knows where it is."""
