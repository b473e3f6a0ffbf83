"""The exit codes of the program, and what they mean in its help and manual pages.

It imports no library, for the program's start needs it before it loads one.
"""

from typing import Final

INTERRUPTED: Final = 130
"""The exit code after Ctrl-C, as shells have it: 128 and the number of SIGINT."""
CLOSED_PIPE: Final = 141
"""The exit code if the reader of standard output ended first, as shells have it: 128 and the number of SIGPIPE."""
DIFFERENT: Final = "3"
"""The exit code of a difference, of commands with --exit-code."""
DONE_MEANING: Final = ("0", "Done; finding nothing is no failure.")
INTERRUPTED_MEANING: Final = (str(INTERRUPTED), "Interrupted.")
CLOSED_PIPE_MEANING: Final = (str(CLOSED_PIPE), "The reader of the output ended first, as head does.")
EXIT_CODES: Final = (
    DONE_MEANING,
    ("1", "Something failed, could not be reached, or did not hold."),
    ("2", "Wrong usage; nothing was done."),
    (DIFFERENT, "Something differs, where --exit-code asks for that."),
    INTERRUPTED_MEANING,
    CLOSED_PIPE_MEANING,
)
"""The exit codes of all commands but kafka-configs, which has those of Kafka's program."""
