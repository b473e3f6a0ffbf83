"""A broker of the time before quota requests: answers ApiVersions and Metadata, and knows nothing else."""

import socket
import socketserver
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.wire.protocol.error_code import ErrorCode

API_VERSIONS, METADATA = ApiKey.API_VERSIONS, ApiKey.METADATA
_UNSUPPORTED_VERSION = ErrorCode.UNSUPPORTED_VERSION
_KNOWN = {API_VERSIONS: (0, 0), METADATA: (0, 1), ApiKey.PRODUCE: (0, 2), ApiKey.FETCH: (0, 2)}


@contextmanager
def old_broker() -> Iterator[str]:
    """The address (host:port) of the broker.

    Gone at the end.
    """
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Connection) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


class _Connection(socketserver.StreamRequestHandler):
    request: socket.socket

    def handle(self) -> None:
        while len(size := self.rfile.read(4)) == 4:
            frame = self.rfile.read(int.from_bytes(size))
            api_key, version, correlation_id = struct.unpack_from(">hhi", frame)
            body = self._api_versions(version) if api_key == API_VERSIONS else self._metadata()
            self.wfile.write(struct.pack(">ii", 4 + len(body), correlation_id) + body)

    def _api_versions(self, version: int) -> bytes:
        """Version 0 of the response, with the error of a version that is too new, as brokers answer it."""
        entries = b"".join(struct.pack(">hhh", key, low, high) for key, (low, high) in _KNOWN.items())
        return struct.pack(">hi", _UNSUPPORTED_VERSION if version else 0, len(_KNOWN)) + entries

    def _metadata(self) -> bytes:
        """Version 1: this broker, which is the controller, and no topics."""
        host, port = self.server.server_address[:2]
        name = str(host).encode()
        broker = struct.pack(">ih", 1, len(name)) + name + struct.pack(">ih", int(port), -1)
        return struct.pack(">i", 1) + broker + struct.pack(">ii", 1, 0)
