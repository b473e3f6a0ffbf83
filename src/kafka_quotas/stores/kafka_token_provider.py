"""A token source in the form in which kafka-python takes it."""

from kafka.net.sasl.oauth import AbstractTokenProvider

from kafka_quotas.stores.client_properties_oauth import TokenSource


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]
    """Gives a fresh token for every connection: they are few, and a kept one would expire."""

    def __init__(self, source: TokenSource) -> None:
        super().__init__()
        self._source = source

    def token(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
        """A token; raises `StoreRefusedError` where there is none to be had."""
        return self._source.fetch()

    def extensions(self) -> dict[str, str]:
        """The SASL extensions that go with it."""
        return dict(self._source.extensions)
