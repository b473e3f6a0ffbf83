"""Throttle times that clients of kafka-python were told: the library says them in its log, and nowhere else.

Its metrics have the average and the longest of a while, from which no sum can be had. The log has every one above 0,
with the connection that was told it, which knows its client's id.
"""

import logging
from collections import deque
from typing import Any, Final

_LOGGER: Final = "kafka.net.connection"
_SAID: Final = "throttled by broker"


class ThrottleLog(logging.Handler):
    """The throttle times that one client is told, in ms, until `close`; nothing of them reaches a terminal."""

    def __init__(self, client_id: str | None) -> None:
        super().__init__(logging.WARNING)
        self._client_id = client_id
        self._told: deque[tuple[str, int]] = deque()
        logging.getLogger(_LOGGER).addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Nothing; a throttle time of this client's is kept."""
        arguments: Any = record.args
        if _SAID in record.msg and isinstance(arguments, tuple) and arguments[0].config["client_id"] == self._client_id:
            self._told.append((str(arguments[1]), int(arguments[2])))

    def taken(self) -> list[int]:
        """The throttle times since the last call, in order."""
        return [self._told.popleft()[1] for _ in range(len(self._told))]

    def close(self) -> None:
        """Nothing; no more are kept."""
        logging.getLogger(_LOGGER).removeHandler(self)
        super().close()
