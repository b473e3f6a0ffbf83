"""The host and port of one server, in store addresses and in the Metadata of brokers."""

from typing import NamedTuple, Self


class ServerAddress(NamedTuple):
    """A host, without brackets, and a port."""

    host: str
    port: int

    @classmethod
    def parse(cls, server: str) -> Self:
        """Return the address in a text of the form host:port or [IPv6 address]:port."""
        host, _, port = server.rpartition(":")
        return cls(host.strip("[]"), int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
