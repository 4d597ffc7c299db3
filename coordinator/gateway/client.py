"""Sends our own requests to one broker of the upstream, the Kafka cluster behind the gateway.

All requests use one connection. It opens at the first request, stays open, and opens again after a
failure. Several requests may wait for answers: they are sent in the order of the calls, and
answered in this order.

The safe reader reads the answers (docs/design.md#codecs), because a broker is another program.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, cast

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.gateway.dialing import CLIENT_ID, DialError, dial
from groupkeeper.coordinator.gateway.link import SESSION_SHARE
from groupkeeper.coordinator.gateway.security import Security
from groupkeeper.coordinator.handlers.services import Endpoint
from groupkeeper.coordinator.version import VERSION
from groupkeeper.protocol.asking import read_response, write_request
from groupkeeper.protocol.errors import ProtocolError
from groupkeeper.protocol.frames import PREFIX_BYTES

MAX_ANSWER_BYTES: Final = 104_857_600
"""Kafka's own limit of a frame (socket.request.max.bytes)."""
MAX_IN_FLIGHT: Final = 1_000
"""The largest number of requests of one connection that may wait for an answer. We need only a few.
The limit keeps a bug from filling the memory.
"""
_API_VERSIONS: Final = 18
_LAST_API_VERSIONS: Final = 4


class BrokerError(Exception):
    """A broker does not answer, or its answer does not fit the request. The message is one line."""


class NotSent(BrokerError):
    """The request was not sent, usually because there was no connection."""


class NoAnswer(BrokerError):
    """The request was sent, and no answer came. The broker may have carried it out."""


class UnsupportedApi(BrokerError):
    """The broker has no version of this API that we know. The request was not sent."""


class BrokerApis(NamedTuple):
    """The versions and features that a broker lists (ApiVersions)."""

    ranges: Mapping[int, tuple[int, int]]
    """API key -> the lowest and the highest version."""
    features: Mapping[str, int]
    """The finalized features of the cluster, such as ``transaction.version``."""

    def newest(self, api_key: int, known: range) -> int | None:
        """Return the highest version that the broker has and that is in ``known``; None if there is
        none.
        """
        low, high = self.ranges.get(api_key, (0, -1))
        both = range(max(low, known.start), min(high + 1, known.stop))
        return both[-1] if both else None


class BrokerClient:
    """Sends our own requests to one broker, over one connection."""

    def __init__(
        self,
        endpoint: Endpoint,
        security: Security,
        *,
        connect_timeout_s: float,
        request_timeout_s: float,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
    ) -> None:
        """Remember where the broker is. Nothing is connected before the first request."""
        self.endpoint = endpoint
        self._security = security
        self._connect_timeout_s = connect_timeout_s
        self._request_timeout_s = request_timeout_s
        self._max_answer_bytes = max_answer_bytes
        self._connection: _Connection | None = None
        self._apis: BrokerApis | None = None
        self._opening = asyncio.Lock()
        self._is_closed = False

    async def ask(
        self, api_key: int, versions: range, *, timeout_s: float | None = None, **values: Any
    ) -> Any:
        """Send a request in the highest of ``versions`` that the broker has. Return the answer.

        Values of fields that the version lacks are ignored. ``timeout_s`` replaces the usual
        timeout of requests. Raises NotSent, NoAnswer or UnsupportedApi. After a time-out the
        connection is closed, because the broker may hang.
        """
        return (await self._ask(api_key, versions, timeout_s, values, _read))[1]

    async def ask_frame(
        self, api_key: int, versions: range, *, timeout_s: float | None = None, **values: Any
    ) -> tuple[int, bytes]:
        """As ``ask``, but return the version and the whole frame of the answer, unread."""
        return await self._ask(api_key, versions, timeout_s, values, _frame)

    async def _ask(
        self,
        api_key: int,
        versions: range,
        timeout_s: float | None,
        values: Mapping[str, Any],
        read: Callable[[_Waiting, bytes], Any],
    ) -> tuple[int, Any]:
        connection, apis = await self._opened()
        version = apis.newest(api_key, versions)
        if version is None:
            raise UnsupportedApi(
                f"{self.endpoint.host}:{self.endpoint.port}: has no known version of API {api_key}"
            )
        limit_s = timeout_s or self._request_timeout_s
        return version, await connection.ask(api_key, version, limit_s, values, read)

    async def apis(self) -> BrokerApis:
        """Return the versions and features that the broker listed when the connection was opened.

        Raises BrokerError if the broker cannot be asked.
        """
        return (await self._opened())[1]

    def close(self) -> None:
        """Close the connection. Requests without an answer raise NoAnswer, later ones NotSent."""
        self._is_closed = True
        self._drop()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise NotSent(f"{self.endpoint.host}:{self.endpoint.port}: the client is closed")

    async def _opened(self) -> tuple[_Connection, BrokerApis]:
        async with self._opening:  # waiters acquire it in order, so requests keep their order
            connection = self._connection
            if connection is None or not connection.is_usable:
                connection = await self._open()
            assert self._apis is not None
            return connection, self._apis

    async def _open(self) -> _Connection:
        where = f"{self.endpoint.host}:{self.endpoint.port}"
        self._refuse_if_closed()
        connection = _Connection(where, self._max_answer_bytes)
        try:
            dialed = await dial(self.endpoint, self._security, connection, self._connect_timeout_s)
        except DialError as error:
            raise NotSent(str(error)) from error
        try:
            self._apis = await _ask_apis(connection, self._connect_timeout_s)
            self._refuse_if_closed()
        except BaseException as error:
            connection.close()
            if isinstance(error, BrokerError):  # only ApiVersions was sent
                raise NotSent(str(error)) from error
            raise
        if dialed.session_ms:
            connection.expire_after(dialed.session_ms / 1000 * SESSION_SHARE)
        self._connection = connection
        return connection


async def _ask_apis(connection: _Connection, timeout_s: float) -> BrokerApis:
    """Return the answer to ApiVersions, in the highest version that we and the broker have."""
    values = {"client_software_name": CLIENT_ID, "client_software_version": VERSION}
    answer = await connection.ask(_API_VERSIONS, _LAST_API_VERSIONS, timeout_s, values, _read)
    if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
        # The answer is of version 0 and has the range of this API.
        theirs = {api.api_key: api.max_version for api in answer.api_keys}
        version = min(theirs.get(_API_VERSIONS, 0), _LAST_API_VERSIONS)
        answer = await connection.ask(_API_VERSIONS, version, timeout_s, values, _read)
    if answer.error_code:
        raise NoAnswer(f"{connection.where}: refuses ApiVersions: error {answer.error_code}")
    return BrokerApis(
        {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys},
        {each.name: each.max_version_level for each in getattr(answer, "finalized_features", ())},
    )


class _Waiting(NamedTuple):
    api_key: int
    version: int
    correlation_id: int
    read: Callable[[_Waiting, bytes], Any]
    answer: asyncio.Future[Any]


class _Connection(asyncio.Protocol):
    """One connection: requests go out in order, and answers are read as they arrive."""

    def __init__(self, where: str, max_answer_bytes: int) -> None:
        self.where = where
        self._max_answer_bytes = max_answer_bytes
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[_Waiting] = deque()
        self._received = bytearray()
        self._correlation_id = 0
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._is_expired = False
        self._expiry: asyncio.TimerHandle | None = None

    @property
    def is_usable(self) -> bool:
        """True if new requests may be sent."""
        transport = self._transport
        return transport is not None and not transport.is_closing() and not self._is_expired

    async def ask(
        self,
        api_key: int,
        version: int,
        timeout_s: float,
        values: Mapping[str, Any],
        read: Callable[[_Waiting, bytes], Any],
    ) -> Any:
        """Send a request. Return the result of ``read`` for its answer.

        Raises NotSent or NoAnswer.
        """
        if len(self._waiting) >= MAX_IN_FLIGHT:
            raise NotSent(f"{self.where}: {MAX_IN_FLIGHT} requests wait for an answer")
        transport = self._transport
        if transport is None or transport.is_closing():
            raise NotSent(f"{self.where}: the connection was closed")
        self._correlation_id = (self._correlation_id + 1) & 0x7FFF_FFFF
        number = self._correlation_id
        frame = write_request(api_key, version, number, CLIENT_ID, **values)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(api_key, version, number, read, answer))
        transport.write(frame)
        try:
            async with asyncio.timeout(timeout_s):
                await self._may_write.wait()
                return await answer
        except TimeoutError:
            self.fail(f"no answer within {timeout_s:g} s")
            raise NoAnswer(f"{self.where}: no answer within {timeout_s:g} s") from None

    def expire_after(self, delay_s: float) -> None:
        """After this delay, make the connection unusable for new requests. Close it as soon as no
        request waits.
        """
        self._expiry = asyncio.get_running_loop().call_later(delay_s, self._expire)

    def _expire(self) -> None:
        self._is_expired = True
        if not self._waiting:
            self.close()

    def close(self) -> None:
        """Close the connection. Requests without an answer raise NoAnswer."""
        self.fail("the connection was closed by us")

    def fail(self, reason: str) -> None:
        """Close the connection. Waiting requests raise NoAnswer with this reason."""
        if self._transport is not None:
            self._transport.abort()
        if self._expiry is not None:
            self._expiry.cancel()
        self._may_write.set()
        self._received = bytearray()
        while self._waiting:
            answer = self._waiting.popleft().answer
            if not answer.done():
                answer.set_exception(NoAnswer(f"{self.where}: {reason}"))

    # --- asyncio.Protocol -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass

    def connection_lost(self, exc: Exception | None) -> None:
        self.fail("it closed the connection" if exc is None else f"the connection failed: {exc}")

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= PREFIX_BYTES:
            size = int.from_bytes(self._received[:PREFIX_BYTES], "big", signed=True)
            if not 0 <= size <= self._max_answer_bytes:
                self.fail(f"an answer of {size} bytes; {self._max_answer_bytes} are allowed")
                return
            end = PREFIX_BYTES + size
            if len(self._received) < end:
                return
            body = bytes(memoryview(self._received)[PREFIX_BYTES:end])
            del self._received[:end]
            if not self._answered(body):
                return

    def _answered(self, body: bytes) -> bool:
        """Pass an answer to its request. Return False if the connection had to be closed."""
        if not self._waiting:
            self.fail("an answer to no request")
            return False
        asked = self._waiting.popleft()
        try:
            entity = asked.read(asked, body)
        except ProtocolError as error:
            self._waiting.appendleft(asked)
            self.fail(f"its answer to API {asked.api_key} cannot be read: {error}")
            return False
        if not asked.answer.done():
            asked.answer.set_result(entity)
        if self._is_expired and not self._waiting:
            self.close()
            return False
        return True


def _read(asked: _Waiting, body: bytes) -> Any:
    if asked.api_key == _API_VERSIONS and asked.version and _is_unsupported(body):
        return read_response(_API_VERSIONS, 0, asked.correlation_id, body)
    return read_response(asked.api_key, asked.version, asked.correlation_id, body)


def _frame(asked: _Waiting, body: bytes) -> bytes:
    """Return the whole frame. Raises ProtocolError if it answers another request."""
    number = asked.correlation_id.to_bytes(4, "big")
    if body[:4] != number:
        raise ProtocolError("bad_header", "the answer is to another request")
    return len(body).to_bytes(PREFIX_BYTES, "big") + body


def _is_unsupported(body: bytes) -> bool:
    """Return True if the answer says that the broker lacks this ApiVersions version (KIP-35)."""
    return body[4:6] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")
