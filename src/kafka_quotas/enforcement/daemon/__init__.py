"""The daemon as a whole: its parts put together, its start and its end. May import everything of the daemon."""
