"""The header of the PROXY protocol, as a load balancer sends it."""

import socket
import struct

from kafka_quotas.wire.connection.preamble import SIGNATURE


def proxied(ip: str) -> bytes:
    """What a load balancer says in front of a connection from an address."""
    addresses = socket.inet_aton(ip) + socket.inet_aton("127.0.0.1") + struct.pack(">HH", 40_000, 9092)
    return SIGNATURE + b"\x21\x11" + len(addresses).to_bytes(2, "big") + addresses
