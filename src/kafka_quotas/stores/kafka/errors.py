"""Errors of a broker connection, by what the client does after them."""

from kafka_quotas.core.errors import StoreRefusedError, StoreUnreachableError


class BrokerRefusedError(StoreRefusedError):
    """A connection or request that the broker, or this client, refuses.

    `code` is Kafka's name of the error.
    """

    def __init__(self, message: str, *, code: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.code = code


class ShutOutError(ConnectionError):
    """The end of a fresh connection by the broker, without an answer.

    The broker may be busy, but most often the port is the wrong one.
    """

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class LostAnswerError(StoreUnreachableError):
    """A request that was sent and not answered."""
