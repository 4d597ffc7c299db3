"""Opens a connection to a broker: TCP, TLS, and the login with SASL.

``dial`` returns only after the login, so a caller sees a connection that is ready for requests.
aiokafka computes the messages of PLAIN and SCRAM. Like Kafka (``ScramFormatter``), it does not
normalize names and passwords.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, cast

from aiokafka.conn import SaslPlainAuthenticator, ScramAuthenticator

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.gateway.security import Login, Security
from groupkeeper.coordinator.handlers.services import Endpoint
from groupkeeper.protocol.asking import read_response, write_request
from groupkeeper.protocol.errors import ProtocolError
from groupkeeper.protocol.frames import PREFIX_BYTES

CLIENT_ID: Final = "groupkeeper"
"""The client id of our own requests."""

MAX_LOGIN_BYTES: Final = 65_536
"""The longest answer before the login is complete. A real one has some hundred bytes."""
MIN_ITERATIONS: Final = 4_096
MAX_ITERATIONS: Final = 100_000
"""The bounds of the iterations that a broker may ask for in SCRAM. Kafka allows 4,096 to 16,384.
With few iterations a false broker could easily guess the password. A million iterations would
occupy a thread for a second.
"""

_KEEPALIVE: Final = (
    ("TCP_KEEPIDLE", 60),
    ("TCP_KEEPINTVL", 15),
    ("TCP_KEEPCNT", 4),
    ("TCP_USER_TIMEOUT", 120_000),
)
"""TCP options: if a machine no longer answers, its connection is closed after two minutes.

This frees the two file descriptors of a client connection. Without these options TCP would wait for
ever if nothing is sent, and 15 minutes otherwise. The time is not shorter, because a broker with
quotas may stop reading for a few windows (quota.window.size.seconds), and TCP_USER_TIMEOUT also
ends a connection from which the broker does not read. Systems other than Linux lack some options.
"""

_SASL_HANDSHAKE, _SASL_AUTHENTICATE = 17, 36
_HANDSHAKE_VERSION: Final = 1
_AUTHENTICATE_VERSION: Final = 1
"""The first version that says when the session ends (KIP-368)."""
_ITERATIONS: Final = re.compile(rb"(?:^|,)i=(\d{1,10})(?:,|$)")


class DialError(Exception):
    """A connection to this broker is not possible now. The message is one line for a person."""


class Dialed(NamedTuple):
    """A connection that is ready for requests."""

    transport: asyncio.Transport
    session_ms: int
    """The broker ends the connection after this time (connections.max.reauth.ms). 0: never."""


async def dial(
    endpoint: Endpoint, security: Security, protocol: asyncio.Protocol, timeout_s: float
) -> Dialed:
    """Connect to a broker and log in. Then pass the connection to ``protocol``, whose
    ``connection_made`` is called before this returns.

    Raises DialError if this fails or takes longer than ``timeout_s``. If the call fails or is
    cancelled, the connection is closed and ``protocol`` was not called.
    """
    where = f"{endpoint.host}:{endpoint.port}"
    loop = asyncio.get_running_loop()
    beginning: _Beginning | None = None
    try:
        async with asyncio.timeout(timeout_s):
            _, beginning = await loop.create_connection(
                _Beginning,
                *endpoint,
                ssl=security.tls,
                server_hostname=endpoint.host if security.tls is not None else None,
            )
            session_ms = 0
            if security.login is not None:
                session_ms = await _log_in(beginning, security.login)
            transport = beginning.hand_over(protocol)
    except BaseException as error:
        if beginning is not None:
            beginning.abort()
        if reason := _reason(error, timeout_s):
            raise DialError(f"{where}: {reason}") from error
        raise
    return Dialed(transport, session_ms)


def _reason(error: BaseException, timeout_s: float) -> str | None:
    """Return a text for a person; None if the error is not about the connection."""
    if isinstance(error, TimeoutError):
        return f"no connection within {timeout_s:g} s"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    if isinstance(error, OSError):
        return f"cannot connect ({error.strerror or error})"
    if isinstance(error, ProtocolError | _LoginFailed):
        return str(error)
    return None


class _LoginFailed(Exception):
    """The broker refuses the login, or its answer is not valid in Kafka's protocol."""


async def _log_in(beginning: _Beginning, login: Login) -> int:
    """Log in. Return the length of the session in milliseconds; 0 if it never ends."""
    answer = await beginning.ask(_SASL_HANDSHAKE, _HANDSHAKE_VERSION, mechanism=login.mechanism)
    if answer.error_code:
        known = ", ".join(answer.mechanisms) or "none"
        raise _LoginFailed(f"it does not offer {login.mechanism}; it offers {known}")
    step, session_ms = _authenticator(login), 0
    token: bytes | None = None
    while (proof := await _next_proof(step, token)) is not None:
        answer = await beginning.ask(_SASL_AUTHENTICATE, _AUTHENTICATE_VERSION, auth_bytes=proof)
        if answer.error_code:
            why = answer.error_message or ErrorCode.SASL_AUTHENTICATION_FAILED.name
            raise _LoginFailed(f"it refuses the login of {login.user!r}: {why}")
        token, session_ms = answer.auth_bytes, answer.session_lifetime
        _check_iterations(token)
    return int(session_ms)


_Step = Callable[[Any], Awaitable[tuple[bytes, bool] | None]]


def _authenticator(login: Login) -> _Step:
    options: dict[str, Any] = {
        "loop": asyncio.get_running_loop(),
        "sasl_plain_username": login.user,
        "sasl_plain_password": login.password,
    }
    if login.mechanism == "PLAIN":
        step: _Step = SaslPlainAuthenticator(**options).step
    else:
        step = ScramAuthenticator(**options, sasl_mechanism=login.mechanism).step
    return step


async def _next_proof(step: _Step, token: bytes | None) -> bytes | None:
    """Return the next message to the broker. None after the last one."""
    try:
        proof = await step(token)
    except (ValueError, KeyError, AssertionError) as error:  # raised by the checks of aiokafka
        raise _LoginFailed(
            "its answer to the login is not valid; is it the right broker?"
        ) from error
    return None if proof is None else proof[0]


def _check_iterations(token: bytes) -> None:
    found = _ITERATIONS.search(token)
    if found and not MIN_ITERATIONS <= int(found[1]) <= MAX_ITERATIONS:
        raise _LoginFailed(
            f"it asks for {int(found[1])} iterations of SCRAM; {MIN_ITERATIONS} to "
            f"{MAX_ITERATIONS} are allowed"
        )


def _keep_alive(sock: socket.socket) -> None:
    """Let the kernel close the connection if the other machine no longer answers."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


class _Beginning(asyncio.Protocol):
    """A connection on which the login is not complete yet. It sends one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport
        self._received = bytearray()
        self._answer: asyncio.Future[bytes] | None = None
        self._lost: BaseException | None = None
        self._correlation_id = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        _keep_alive(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) < PREFIX_BYTES:
            return
        size = int.from_bytes(self._received[:PREFIX_BYTES], "big", signed=True)
        missing = PREFIX_BYTES + size - len(self._received)
        if self._answer is None or not 0 <= size <= MAX_LOGIN_BYTES or missing < 0:
            self._fail(_LoginFailed("the server there does not speak Kafka"))
        elif missing == 0:
            answer, self._answer = self._answer, None
            body = bytes(self._received[PREFIX_BYTES:])
            self._received.clear()
            if not answer.done():
                answer.set_result(body)

    def connection_lost(self, exc: Exception | None) -> None:
        hint = "it closed the connection; does it expect TLS or SASL on this port?"
        self._fail(_LoginFailed(hint) if exc is None else exc)

    def _fail(self, error: BaseException) -> None:
        self._lost = self._lost or error
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(self._lost)
        self._answer = None
        self.abort()

    async def ask(self, api_key: int, version: int, **values: Any) -> Any:
        if self._lost is not None:
            raise self._lost
        self._correlation_id += 1
        frame = write_request(api_key, version, self._correlation_id, CLIENT_ID, **values)
        answer = self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(frame)
        return read_response(api_key, version, self._correlation_id, await answer)

    def hand_over(self, protocol: asyncio.Protocol) -> asyncio.Transport:
        """Pass the connection to ``protocol``. Return its transport. If the connection was lost,
        raise the reason.
        """
        if self._lost is not None:
            raise self._lost
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        return self._transport

    def abort(self) -> None:
        self._transport.abort()
