"""Errors of a connection to a broker that another attempt would not mend."""

from kafka_quotas.core.errors import StoreRefusedError, StoreUnreachableError


class BrokerRefusedError(StoreRefusedError):
    """The broker, or we, refuse the connection or the request; `code` is Kafka's name of the error."""

    def __init__(self, message: str, *, code: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.code = code


class ShutOutError(ConnectionError):
    """A broker ended a fresh connection without a word: it may be busy, but most often it is the wrong port."""

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class LostAnswerError(StoreUnreachableError):
    """A request was sent, and no answer came."""
