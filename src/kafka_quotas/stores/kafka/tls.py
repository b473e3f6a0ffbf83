"""TLS over the connection to a broker, and the meaning of its failures."""

import socket
import ssl
from typing import Final

from kafka_quotas.stores.kafka.errors import BrokerRefusedError, ShutOutError

_CODE: Final = "SSL_AUTHENTICATION_FAILED"
_PLAINTEXT_HINT: Final = (
    "the port most likely speaks plaintext: give the TLS port, or set security.protocol to PLAINTEXT or SASL_PLAINTEXT"
)
_NOT_TLS: Final = ("WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")


def wrapped(plain: socket.socket, *, tls: ssl.SSLContext, server: str, host: str) -> socket.socket:
    """Return the connection with TLS over it.

    Raises:
        BrokerRefusedError: One side does not trust the other.
        ShutOutError: The other side ends the handshake.
    """
    try:
        return tls.wrap_socket(plain, server_hostname=host)
    except (ssl.SSLEOFError, ConnectionError) as error:
        raise ShutOutError(f"{server} ended the TLS handshake", hint=_PLAINTEXT_HINT) from error
    except ssl.SSLError as error:
        raise tls_refusal(error, server=server) from error


def tls_refusal(error: ssl.SSLError, *, server: str) -> BrokerRefusedError:
    """Return our error for one of TLS."""
    hint = "check the trust store and the security settings in the file named with --command-config"
    reason = error.reason or ""
    if reason in _NOT_TLS:
        hint = _PLAINTEXT_HINT
    elif reason.endswith("CERTIFICATE_REQUIRED"):
        hint = "the broker wants a certificate of the client: name it with ssl.keystore.location"
    told = getattr(error, "verify_message", "") or reason.replace("_", " ").lower() or str(error)
    return BrokerRefusedError(f"no TLS connection to {server}: {told}", code=_CODE, hint=hint)
