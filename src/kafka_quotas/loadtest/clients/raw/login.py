"""Opening a raw client's connection: TCP, TLS and SASL, with this project's errors.

**Source:** KIP-43, KIP-152; `SaslClientAuthenticator`, Kafka 4.1.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Final

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.loadtest.clients.errors import LoadRefusedError
from kafka_quotas.loadtest.clients.raw.connection import RawConnection
from kafka_quotas.stores.kafka.properties import KafkaAccess
from kafka_quotas.stores.security.sasl import SaslMechanism
from kafka_quotas.wire.client.sasl import AuthenticateRequest, HandshakeRequest

CONTACT_S: Final = 10.0
_HANDSHAKE_VERSION: Final = 1
_AUTHENTICATE_VERSION: Final = 1
_LOGIN_HINT: Final = "check sasl.username, sasl.password and sasl.mechanism (-X KEY=VALUE)"
_TLS_HINT: Final = "check ssl.ca.location and the listener's protocol"


def _for_one_request() -> RawConnection:
    return RawConnection(on_lost=lambda _connection, _error: None, on_room=lambda: None)


async def opened(
    address: tuple[str, int],
    *,
    access: KafkaAccess,
    client_id: str | None,
    connection: Callable[[], RawConnection] = _for_one_request,
) -> RawConnection:
    """Open a connection to a broker and log in.

    Raises:
        LoadRefusedError: If TLS or the login fails.
        OSError: If the broker is not reached in time, which may pass.
    """
    host, port = address
    loop = asyncio.get_running_loop()
    server_hostname = host if access.tls is not None else None
    try:
        async with asyncio.timeout(CONTACT_S):
            _, made = await loop.create_connection(
                connection, host, port, ssl=access.tls, server_hostname=server_hostname, proto=socket.IPPROTO_TCP
            )
            try:
                if access.login is not None:
                    await _log_in(made, access.login, client_id=client_id, server=f"{host}:{port}")
            except BaseException:
                made.close()
                raise
    except ssl.SSLCertVerificationError as error:
        raise LoadRefusedError(f"TLS failed at {host}:{port}: {error.verify_message}", hint=_TLS_HINT) from error
    except ssl.SSLError as error:
        reason = (error.reason or str(error)).replace("_", " ").lower()
        raise LoadRefusedError(f"TLS failed at {host}:{port}: {reason}", hint=_TLS_HINT) from error
    return made


async def _log_in(connection: RawConnection, login: SaslMechanism, *, client_id: str | None, server: str) -> None:
    shake = HandshakeRequest(mechanism=login.mechanism)
    mechanisms = await connection.ask(shake, _HANDSHAKE_VERSION, client_id=client_id)
    if mechanisms.error_code:
        offered = ", ".join(mechanisms.offered) or "no login at this port"
        raise LoadRefusedError(f"{server} does not take sasl.mechanism {login.mechanism}, but {offered}")
    tokens = login.begin()
    try:
        token = next(tokens)
        while True:
            answer = await connection.ask(AuthenticateRequest(token=token), _AUTHENTICATE_VERSION, client_id=client_id)
            if answer.error_code:
                detail = f": {answer.error_message.rstrip('.')}" if answer.error_message else ""
                raise LoadRefusedError(f"authentication failed at {server}{detail}", hint=_LOGIN_HINT)
            token = tokens.send(answer.token)
    except StopIteration:
        return
    except ProtocolError as error:
        raise LoadRefusedError(f"authentication failed at {server}: {error.message}", hint=_LOGIN_HINT) from error
